import com.datastax.driver.core.BatchStatement;
import com.datastax.driver.core.BoundStatement;
import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.ClusteringOrder;
import com.datastax.driver.core.CodecRegistry;
import com.datastax.driver.core.DataType;
import com.datastax.driver.core.PreparedStatement;
import com.datastax.driver.core.QueryOptions;
import com.datastax.driver.core.ResultSet;
import com.datastax.driver.core.Row;
import com.datastax.driver.core.Session;
import com.datastax.driver.core.SimpleStatement;
import com.datastax.driver.core.SocketOptions;
import com.datastax.driver.core.TableMetadata;
import com.datastax.driver.core.TypeCodec;
import com.datastax.driver.core.policies.ConstantReconnectionPolicy;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;

/** A client with the Java driver 3.x: see `_drivers.py`. */
public class Client {
    private static final int PATIENCE_MS = 60_000;
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] arguments) throws Exception {
        JsonNode columns = new ObjectMapper().readTree(new File(arguments[2])).get("columns");
        SocketOptions sockets = new SocketOptions().setReadTimeoutMillis(PATIENCE_MS).setConnectTimeoutMillis(PATIENCE_MS);
        try (Cluster cluster = Cluster.builder()
                .addContactPoint(arguments[0])
                .withPort(Integer.parseInt(arguments[1]))
                .withCredentials("admin", System.getenv("PASSWORD"))
                .withSocketOptions(sockets)
                .withReconnectionPolicy(new ConstantReconnectionPolicy(200))
                .withQueryOptions(new QueryOptions().setRefreshSchemaIntervalMillis(50))
                .withoutJMXReporting()
                .build()) {
            Session session = cluster.connect();
            types(session, columns);
            pages(session);
            batches(session);
            conditions(session);
            metadata(session, columns);
            events(session, "announced");
            restart(session);
            events(session, "announced_again");
        }
    }

    private static void types(Session session, JsonNode columns) {
        List<String> names = columns.findValuesAsText("name");
        String list = String.join(", ", names);
        String marks = "?, ".repeat(names.size()) + "?";
        PreparedStatement insert = session.prepare("INSERT INTO shop.kinds (id, " + list + ") VALUES (" + marks + ")");
        PreparedStatement select = session.prepare("SELECT " + list + " FROM shop.kinds WHERE id = ?");
        List<Object> nothing = new ArrayList<>();
        List<Object> values = new ArrayList<>();
        for (int row = 0; row < 2; row++) {
            values.clear();
            for (int i = 0; i < names.size(); i++) {
                values.add(codec(session, insert, i).parse(columns.get(i).get("values").get(row).get(0).asText()));
            }
            check(read(session, select, row), values);
            write(session, insert, 10 + row, values);
            check(read(session, select, 10 + row), values);
            write(session, insert, 12, values);
        }
        // Values that are not set are kept.
        session.execute(insert.bind().setInt("id", 12));
        check(read(session, select, 12), values);
        names.forEach(name -> nothing.add(null));
        write(session, insert, 12, nothing);
        for (int i = 0; i < names.size(); i++) {
            check(session.execute(select.bind(12)).one().isNull(i), true);
        }
    }

    /** Returns the codec of a marker after that of the id. */
    private static TypeCodec<Object> codec(Session session, PreparedStatement insert, int column) {
        CodecRegistry codecs = session.getCluster().getConfiguration().getCodecRegistry();
        return codecs.codecFor(insert.getVariables().getType(1 + column));
    }

    private static void write(Session session, PreparedStatement insert, int id, List<Object> values) {
        BoundStatement bound = insert.bind().setInt("id", id);
        for (int i = 0; i < values.size(); i++) {
            bound.set(1 + i, values.get(i), codec(session, insert, i));
        }
        session.execute(bound);
    }

    private static List<Object> read(Session session, PreparedStatement select, int id) {
        return values(session.execute(select.bind(id)).one());
    }

    private static List<Object> values(Row row) {
        List<Object> values = new ArrayList<>();
        for (int i = 0; i < row.getColumnDefinitions().size(); i++) {
            values.add(row.getObject(i));
        }
        return values;
    }

    private static void pages(Session session) {
        session.execute("CREATE TABLE shop.readings (device text, at int, note text, PRIMARY KEY (device, at)) "
            + "WITH CLUSTERING ORDER BY (at DESC)");
        PreparedStatement insert = session.prepare("INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)");
        for (int first = 0; first < 1000; first += 100) {
            BatchStatement batch = new BatchStatement(BatchStatement.Type.UNLOGGED);
            for (int at = first; at < first + 100; at++) {
                batch.add(insert.bind("clock", at, "note " + at));
            }
            session.execute(batch);
        }
        PreparedStatement select = session.prepare("SELECT at, note FROM shop.readings WHERE device = ?");
        ResultSet rows = session.execute(select.bind("clock").setFetchSize(100));
        check(rows.getAvailableWithoutFetching(), 100);
        for (int at = 999; at >= 0; at--) {
            Row row = rows.one();
            check(row.getInt("at"), at);
            check(row.getString("note"), "note " + at);
        }
        check(rows.one(), null);
        int pages = rows.getAllExecutionInfo().size();
        check(pages == 10 || pages == 11, true);
    }

    private static void batches(Session session) {
        session.execute("CREATE TABLE shop.hits (page text PRIMARY KEY, hits counter)");
        PreparedStatement insert = session.prepare("INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)");
        BatchStatement batch = new BatchStatement(BatchStatement.Type.LOGGED);
        batch.add(insert.bind("one", 1, "a")).add(insert.bind("two", 2, null));
        batch.add(new SimpleStatement("INSERT INTO shop.readings (device, at) VALUES ('three', 3)"));
        session.execute(batch);
        String some = "SELECT device, note FROM shop.readings WHERE device IN ('one', 'two', 'three')";
        Map<String, String> notes = new HashMap<>();
        session.execute(some).forEach(row -> notes.put(row.getString("device"), row.getString("note")));
        Map<String, String> expected = new HashMap<>(Map.of("one", "a"));
        expected.put("two", null);
        expected.put("three", null);
        check(notes, expected);
        PreparedStatement count = session.prepare("UPDATE shop.hits SET hits = hits + ? WHERE page = ?");
        BatchStatement counts = new BatchStatement(BatchStatement.Type.COUNTER);
        session.execute(counts.add(count.bind(5L, "a")).add(count.bind(-7L, "b")));
        Map<String, Long> hits = new HashMap<>();
        session.execute("SELECT page, hits FROM shop.hits").forEach(row -> hits.put(row.getString(0), row.getLong(1)));
        check(hits, Map.of("a", 5L, "b", -7L));
    }

    private static void conditions(Session session) {
        session.execute("CREATE TABLE shop.locks (name text PRIMARY KEY, owner int)");
        PreparedStatement take = session.prepare("INSERT INTO shop.locks (name, owner) VALUES (?, ?) IF NOT EXISTS");
        check(session.execute(take.bind("door", 1)).wasApplied(), true);
        ResultSet refused = session.execute(take.bind("door", 2));
        check(refused.wasApplied(), false);
        check(values(refused.one()), List.of(false, "door", 1));
        PreparedStatement give = session.prepare("UPDATE shop.locks SET owner = ? WHERE name = ? IF owner = ?");
        refused = session.execute(give.bind(3, "door", 2));
        check(refused.wasApplied(), false);
        check(values(refused.one()), List.of(false, 1));
        check(session.execute(give.bind(3, "door", 1)).wasApplied(), true);
        check(session.execute("SELECT owner FROM shop.locks WHERE name = 'door'").one().getInt(0), 3);
    }

    private static void metadata(Session session, JsonNode columns) {
        TableMetadata kinds = table(session, "kinds");
        for (JsonNode column : columns) {
            DataType type = kinds.getColumn(column.get("name").asText()).getType();
            check(type.toString().replace("shop.", ""), column.get("type").asText());
        }
        TableMetadata readings = table(session, "readings");
        check(readings.getPartitionKey().get(0).getName(), "device");
        check(readings.getClusteringOrder(), List.of(ClusteringOrder.DESC));
        check(readings.getPrimaryKey().size(), 2);
    }

    private static TableMetadata table(Session session, String name) {
        return session.getCluster().getMetadata().getKeyspace("shop").getTable(name);
    }

    private static void events(Session session, String name) throws Exception {
        ask("CREATE TABLE shop." + name + " (id int PRIMARY KEY)");
        until("a created table", () -> table(session, name) != null);
        ask("ALTER TABLE shop." + name + " ADD note text");
        until("an added column", () -> table(session, name).getColumn("note") != null);
        ask("DROP TABLE shop." + name);
        until("a dropped table", () -> table(session, name) == null);
    }

    private static void restart(Session session) throws Exception {
        PreparedStatement select = session.prepare("SELECT owner FROM shop.locks WHERE name = ?");
        check(session.execute(select.bind("door")).one().getInt(0), 3);
        ask("restart");
        until("a connection", () -> session.execute(select.bind("door")).one().getInt(0) == 3);
    }

    /** Asks the test to restart the server, or to run a statement as another client. */
    private static void ask(String request) throws Exception {
        System.out.println(request);
        check(INPUT.readLine(), "done");
    }

    /** Repeats an attempt until it returns true. */
    private static void until(String purpose, Callable<Boolean> attempt) throws Exception {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000L;
        Exception reason = null;
        while (true) {
            try {
                if (attempt.call()) {
                    return;
                }
            } catch (Exception error) {
                reason = error;
            }
            if (System.nanoTime() > deadline) {
                throw new AssertionError(purpose, reason);
            }
            Thread.sleep(20);
        }
    }

    private static void check(Object seen, Object expected) {
        if (!(seen == null ? expected == null : seen.equals(expected))) {
            throw new AssertionError("expected " + expected + ", got " + seen);
        }
    }
}
