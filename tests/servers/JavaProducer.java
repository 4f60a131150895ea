import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Produces a record for each key on standard input (a line each, in hexadecimal) and prints the partitions. */
public class JavaProducer {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> options = Map.of("bootstrap.servers", arguments[0]);
        ByteArraySerializer serializer = new ByteArraySerializer();
        BufferedReader keys = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(options, serializer, serializer)) {
            for (String line = keys.readLine(); line != null; line = keys.readLine()) {
                byte[] key = HexFormat.of().parseHex(line);
                System.out.println(producer.send(new ProducerRecord<>(arguments[1], key, key)).get().partition());
            }
        }
    }
}
