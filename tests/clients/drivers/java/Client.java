import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchStatementBuilder;
import com.datastax.oss.driver.api.core.cql.BatchType;
import com.datastax.oss.driver.api.core.cql.BoundStatementBuilder;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.metadata.schema.ClusteringOrder;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.type.DataType;
import com.datastax.oss.driver.api.core.type.codec.TypeCodec;
import com.datastax.oss.driver.api.core.type.codec.registry.CodecRegistry;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;

/** A client with the Java driver 4.x: see `_drivers.py`. */
public class Client {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] arguments) throws Exception {
        JsonNode columns = new ObjectMapper().readTree(new File(arguments[2])).get("columns");
        DriverConfigLoader settings = DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ofMillis(50))
            .withDuration(DefaultDriverOption.RECONNECTION_BASE_DELAY, Duration.ofMillis(200))
            .build();
        try (CqlSession session = CqlSession.builder()
                .addContactPoint(new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1])))
                .withLocalDatacenter("datacenter1")
                .withAuthCredentials("admin", System.getenv("PASSWORD"))
                .withConfigLoader(settings)
                .build()) {
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

    private static void types(CqlSession session, JsonNode columns) {
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
                DataType type = insert.getVariableDefinitions().get(1 + i).getType();
                TypeCodec<Object> codec = session.getContext().getCodecRegistry().codecFor(type);
                values.add(codec.parse(columns.get(i).get("values").get(row).get(0).asText()));
            }
            check(read(session, select, row), values);
            write(session, insert, 10 + row, values);
            check(read(session, select, 10 + row), values);
            write(session, insert, 12, values);
        }
        // Values that are not set are kept.
        session.execute(insert.boundStatementBuilder().setInt("id", 12).build());
        check(read(session, select, 12), values);
        names.forEach(name -> nothing.add(null));
        write(session, insert, 12, nothing);
        for (int i = 0; i < names.size(); i++) {
            check(session.execute(select.bind(12)).one().isNull(i), true);
        }
    }

    private static void write(CqlSession session, PreparedStatement insert, int id, List<Object> values) {
        BoundStatementBuilder bound = insert.boundStatementBuilder().setInt("id", id);
        CodecRegistry codecs = session.getContext().getCodecRegistry();
        for (int i = 0; i < values.size(); i++) {
            TypeCodec<Object> codec = codecs.codecFor(insert.getVariableDefinitions().get(1 + i).getType());
            bound.set(1 + i, values.get(i), codec);
        }
        session.execute(bound.build());
    }

    private static List<Object> read(CqlSession session, PreparedStatement select, int id) {
        return values(session.execute(select.bind(id)).one());
    }

    private static List<Object> values(Row row) {
        List<Object> values = new ArrayList<>();
        for (int i = 0; i < row.size(); i++) {
            values.add(row.getObject(i));
        }
        return values;
    }

    private static void pages(CqlSession session) {
        session.execute("CREATE TABLE shop.readings (device text, at int, note text, PRIMARY KEY (device, at)) "
            + "WITH CLUSTERING ORDER BY (at DESC)");
        PreparedStatement insert = session.prepare("INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)");
        for (int first = 0; first < 1000; first += 100) {
            BatchStatementBuilder batch = BatchStatement.builder(BatchType.UNLOGGED);
            for (int at = first; at < first + 100; at++) {
                batch.addStatement(insert.bind("clock", at, "note " + at));
            }
            session.execute(batch.build());
        }
        PreparedStatement select = session.prepare("SELECT at, note FROM shop.readings WHERE device = ?");
        ResultSet rows = session.execute(select.bind("clock").setPageSize(100));
        check(rows.getAvailableWithoutFetching(), 100);
        for (int at = 999; at >= 0; at--) {
            Row row = rows.one();
            check(row.getInt("at"), at);
            check(row.getString("note"), "note " + at);
        }
        check(rows.one(), null);
        int pages = rows.getExecutionInfos().size();
        check(pages == 10 || pages == 11, true);
    }

    private static void batches(CqlSession session) {
        session.execute("CREATE TABLE shop.hits (page text PRIMARY KEY, hits counter)");
        PreparedStatement insert = session.prepare("INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)");
        session.execute(BatchStatement.newInstance(BatchType.LOGGED,
            insert.bind("one", 1, "a"), insert.bind("two", 2, null),
            SimpleStatement.newInstance("INSERT INTO shop.readings (device, at) VALUES ('three', 3)")));
        String some = "SELECT device, note FROM shop.readings WHERE device IN ('one', 'two', 'three')";
        Map<String, String> notes = new HashMap<>();
        session.execute(some).forEach(row -> notes.put(row.getString("device"), row.getString("note")));
        Map<String, String> expected = new HashMap<>(Map.of("one", "a"));
        expected.put("two", null);
        expected.put("three", null);
        check(notes, expected);
        PreparedStatement count = session.prepare("UPDATE shop.hits SET hits = hits + ? WHERE page = ?");
        session.execute(BatchStatement.newInstance(BatchType.COUNTER, count.bind(5L, "a"), count.bind(-7L, "b")));
        Map<String, Long> hits = new HashMap<>();
        session.execute("SELECT page, hits FROM shop.hits").forEach(row -> hits.put(row.getString(0), row.getLong(1)));
        check(hits, Map.of("a", 5L, "b", -7L));
    }

    private static void conditions(CqlSession session) {
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

    private static void metadata(CqlSession session, JsonNode columns) {
        TableMetadata kinds = table(session, "kinds").get();
        for (JsonNode column : columns) {
            DataType type = kinds.getColumn(column.get("name").asText()).get().getType();
            check(type.asCql(true, true).replace("shop.", ""), column.get("type").asText());
        }
        TableMetadata readings = table(session, "readings").get();
        check(readings.getPartitionKey().get(0).getName().asInternal(), "device");
        check(List.copyOf(readings.getClusteringColumns().values()), List.of(ClusteringOrder.DESC));
        check(readings.getPrimaryKey().size(), 2);
    }

    private static Optional<TableMetadata> table(CqlSession session, String name) {
        return session.getMetadata().getKeyspace("shop").flatMap(shop -> shop.getTable(name));
    }

    private static void events(CqlSession session, String name) throws Exception {
        ask("CREATE TABLE shop." + name + " (id int PRIMARY KEY)");
        until("a created table", () -> table(session, name).isPresent());
        ask("ALTER TABLE shop." + name + " ADD note text");
        until("an added column", () -> table(session, name).get().getColumn(CqlIdentifier.fromCql("note")).isPresent());
        ask("DROP TABLE shop." + name);
        until("a dropped table", () -> table(session, name).isEmpty());
    }

    private static void restart(CqlSession session) throws Exception {
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
        long deadline = System.nanoTime() + PATIENCE.toNanos();
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
