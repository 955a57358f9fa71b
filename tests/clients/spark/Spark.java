import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/** Runs each line of its input as a statement of Spark's SQL. Prints its rows, with tabs between values, and then {@code END}. */
public class Spark {
    private static final String END = "-- end of the answer";

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try (SparkSession spark = SparkSession.builder().getOrCreate()) {
            for (String statement = input.readLine(); statement != null; statement = input.readLine()) {
                for (Row row : spark.sql(statement).collectAsList()) {
                    System.out.println(row.mkString("\t"));
                }
                System.out.println(END);
            }
        }
    }
}
