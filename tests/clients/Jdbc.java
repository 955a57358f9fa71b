import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The JDBC driver of PostgreSQL, used as by programs and BI tools. jdbc.py runs it on the tables of postgres.py. */
public class Jdbc {
    /** Rows of `shop.orders`. */
    private static final int ROWS = 2000;

    public static void main(String[] arguments) throws Exception {
        try (Connection db = DriverManager.getConnection(arguments[0], "admin", System.getenv("PASSWORD"))) {
            metadata(db.getMetaData());
            statements(db);
            types(db);
            sessions(db);
        }
    }

    private static void metadata(DatabaseMetaData about) throws SQLException {
        check(about.getDatabaseProductName(), "PostgreSQL");
        check(column(about.getSchemas(), "TABLE_SCHEM").contains("shop"), true);
        check(column(about.getCatalogs(), "TABLE_CAT").contains("fairlane"), true);
        String[] tables = {"TABLE"};
        check(column(about.getTables(null, "shop", "%", tables), "TABLE_NAME"), List.of("kinds", "more", "orders", "secrets", "visits"));
        List<String> columns = column(about.getColumns(null, "shop", "orders", "%"), "COLUMN_NAME");
        check(columns, List.of("customer", "id", "note", "price"));
        ResultSet keys = about.getPrimaryKeys(null, "shop", "orders");
        check(column(keys, "COLUMN_NAME"), List.of("customer", "id"));
        check(column(about.getIndexInfo(null, "shop", "orders", false, false), "INDEX_NAME"), List.of());
        check(column(about.getImportedKeys(null, "shop", "orders"), "FKCOLUMN_NAME"), List.of());
        check(column(about.getExportedKeys(null, "shop", "orders"), "FKCOLUMN_NAME"), List.of());
        check(column(about.getTypeInfo(), "TYPE_NAME").contains("int8"), true);
        check(column(about.getFunctions(null, null, "%"), "FUNCTION_NAME"), List.of());
        check(column(about.getProcedures(null, null, "%"), "PROCEDURE_NAME"), List.of());
        check(column(about.getTablePrivileges(null, "shop", "orders"), "GRANTEE"), List.of());
    }

    private static void statements(Connection db) throws SQLException {
        // After the first executions the driver uses a prepared statement and binary values.
        String some = "SELECT id, note FROM orders WHERE customer = ? AND price > ? ORDER BY id";
        try (PreparedStatement statement = db.prepareStatement(some)) {
            for (int again = 0; again < 12; again++) {
                statement.setInt(1, 7);
                statement.setInt(2, 5900);
                check(column(statement.executeQuery(), "id"), List.of("1967", "1977", "1987", "1997"));
            }
        }
        db.setAutoCommit(false);
        try (Statement statement = db.createStatement()) {
            statement.setFetchSize(100);
            check(column(statement.executeQuery("SELECT * FROM orders"), "id").size(), ROWS);
        }
        db.commit();
        db.setAutoCommit(true);
        try (Statement statement = db.createStatement()) {
            check(state(() -> statement.executeQuery("SELECT nothing FROM orders")), "42703");
            statement.execute("SELECT 1; SELECT 2");
            check(statement.getMoreResults(), true);
            check(column(statement.getResultSet(), 1), List.of("2"));
            statement.setQueryTimeout(1);
            String endless = "SELECT count(*) FROM orders a, orders b, orders c, orders d";
            check(state(() -> statement.executeQuery(endless)), "57014");
        }
    }

    private static void types(Connection db) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement("SELECT * FROM kinds WHERE id = ?")) {
            for (int again = 0; again < 12; again++) {
                statement.setInt(1, 1);
                ResultSet row = statement.executeQuery();
                check(row.next(), true);
                check(row.getLong("b"), -5000000000L);
                check(row.getBytes("c"), new byte[] {0, -1});
                check(row.getBoolean("d"), true);
                check(row.getDate("e").toString(), "2026-01-31");
                check(row.getBigDecimal("f").compareTo(new BigDecimal("-1.5")), 0);
                check(row.getDouble("g"), 0.1);
                check(row.getString("l"), "straße");
                check(row.getTime("m").toString(), "12:30:00");
                check(row.getTimestamp("n").getTime(), Timestamp.valueOf("2026-01-31 12:00:00.001").getTime());
                check(row.getString("p"), "8f14e45f-ceea-467f-a8b6-15d2a0c9c9c4");
                check((Object[]) row.getArray("r").getArray(), new Integer[] {3, 1, 2});
                check(row.getString("s").replace(" ", ""), "{\"x\":1}");
                check(row.getObject("u") != null, true);
            }
        }
    }

    private static void sessions(Connection db) throws SQLException {
        db.setReadOnly(true);
        db.setReadOnly(false);
        db.setSchema("shop");
        check(db.getSchema(), "shop");
        check(db.isValid(10), true);
        try (Statement statement = db.createStatement()) {
            statement.execute("SET service_level = reports");
            check(column(statement.executeQuery("SHOW service_level"), 1), List.of("reports"));
            statement.execute("RESET service_level");
        }
    }

    private interface Action {
        void run() throws SQLException;
    }

    /** Returns the SQLSTATE of the action's error. */
    private static String state(Action action) {
        try {
            action.run();
        } catch (SQLException error) {
            return error.getSQLState();
        }
        return "none";
    }

    private static List<String> column(ResultSet rows, Object which) throws SQLException {
        List<String> values = new ArrayList<>();
        while (rows.next()) {
            values.add(which instanceof String name ? rows.getString(name) : rows.getString((Integer) which));
        }
        return values;
    }

    private static void check(Object seen, Object expected) {
        if (!Arrays.deepEquals(new Object[] {seen}, new Object[] {expected})) {
            String text = Arrays.deepToString(new Object[] {seen, expected});
            throw new AssertionError("seen and expected differ: " + text);
        }
    }
}
