import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import io.debezium.transforms.outbox.EventRouter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;

/**
 * Debezium's connector for PostgreSQL, its outbox event router and Kafka Connect's converters, without Kafka.
 *
 * <p>First argument: the connector's configuration, second: configurations of connectors' transforms and converters, by
 * name; JSON both. Prints what each of these makes of every row, one JSON object a line, bytes in hexadecimal.
 */
public class DebeziumOutbox {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final SimpleHeaderConverter HEADERS = new SimpleHeaderConverter();

    /** One connector's `transforms.outbox.…`, `key.converter…` and `value.converter…`. */
    private static class Route {
        private final String name;
        private final EventRouter<SourceRecord> router = new EventRouter<>();
        private final Converter keys;
        private final Converter values;

        Route(String name, Map<String, String> options) throws ReflectiveOperationException {
            this.name = name;
            router.configure(beginningWith("transforms.outbox.", options));
            keys = converter("key.converter", options, true);
            values = converter("value.converter", options, false);
        }

        private static Converter converter(String option, Map<String, String> options, boolean isKey)
                throws ReflectiveOperationException {
            Converter made = (Converter) Class.forName(options.get(option)).getConstructor().newInstance();
            made.configure(beginningWith(option + ".", options), isKey);
            return made;
        }

        Map<String, Object> send(SourceRecord captured) {
            // The router adds to the headers that it is given.
            SourceRecord copy = captured.newRecord(captured.topic(), captured.kafkaPartition(), captured.keySchema(),
                captured.key(), captured.valueSchema(), captured.value(), captured.timestamp(),
                captured.headers().duplicate());
            SourceRecord routed = router.apply(copy);
            String topic = routed.topic();
            List<List<String>> headers = new ArrayList<>();
            for (Header header : routed.headers()) {
                byte[] text = HEADERS.fromConnectHeader(topic, header.key(), header.schema(), header.value());
                headers.add(Arrays.asList(header.key(), hex(text)));
            }
            Map<String, Object> sent = new LinkedHashMap<>();
            sent.put("route", name);
            sent.put("topic", topic);
            sent.put("key", hex(keys.fromConnectData(topic, routed.keySchema(), routed.key())));
            sent.put("value", hex(values.fromConnectData(topic, routed.valueSchema(), routed.value())));
            sent.put("headers", headers);
            return sent;
        }
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] arguments) throws Exception {
        Properties connector = new Properties();
        connector.putAll(JSON.readValue(arguments[0], Map.class));
        List<Route> routes = new ArrayList<>();
        Map<String, Map<String, String>> configured = JSON.readValue(arguments[1], Map.class);
        for (Map.Entry<String, Map<String, String>> route : configured.entrySet()) {
            routes.add(new Route(route.getKey(), route.getValue()));
        }
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
            DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                .using(connector)
                .notifying(event -> print(event.record(), routes))
                .using((success, message, error) -> {
                    if (!success) {
                        System.err.println(message + " " + error);
                    }
                })
                .build();
        engine.run();
    }

    private static void print(SourceRecord captured, List<Route> routes) {
        try {
            for (Route route : routes) {
                System.out.println(JSON.writeValueAsString(route.send(captured)));
            }
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private static Map<String, String> beginningWith(String beginning, Map<String, String> options) {
        Map<String, String> found = new LinkedHashMap<>();
        options.forEach((name, value) -> {
            if (name.startsWith(beginning)) {
                found.put(name.substring(beginning.length()), value);
            }
        });
        return found;
    }
}
