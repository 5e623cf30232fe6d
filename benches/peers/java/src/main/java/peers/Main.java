package peers;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.IOException;
import java.net.URI;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.listener.BatchMessageListener;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.MessageListener;

/**
 * Consumers as the documentation of their libraries has them.
 *
 * <p>They are told what to do by a job as JSON, and answer with a tally as JSON, as the programs in
 * benches/src/programs do.
 */
public final class Main {
    /** What Parallel Consumer runs at a time. */
    private static final int THREADS = 16;

    private static final ObjectMapper JSON = new ObjectMapper();

    private record Transfer(long id, String account, long revision, long amount, String note) {}

    private final JsonNode job;
    private final Meter meter;
    private HikariDataSource pool;

    private Main(JsonNode job) {
        this.job = job;
        meter = new Meter(job.get("records").asLong());
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode job = JSON.readTree(arguments[0]);
        Main main = new Main(job);
        switch (text(job, "program")) {
            case "java-read" -> main.read();
            case "parallel-consumer" -> main.parallelConsumer();
            case "spring" -> main.spring(false);
            case "spring-merge" -> main.spring(true);
            default -> throw new IllegalArgumentException("there is no such program");
        }
        System.out.println(JSON.writeValueAsString(main.meter.tally()));
        System.exit(0);
    }

    private static String text(JsonNode job, String name) {
        return job.get(name).asText();
    }

    private Map<String, Object> properties() {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", text(job, "bootstrap"));
        properties.put("group.id", text(job, "group"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", false);
        properties.put("key.deserializer", StringDeserializer.class);
        properties.put("value.deserializer", ByteArrayDeserializer.class);
        return properties;
    }

    private void openPool(int size) {
        URI uri = URI.create(text(job, "database"));
        String[] user = uri.getUserInfo().split(":", 2);
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql://%s:%d%s?%s"
                .formatted(uri.getHost(), uri.getPort(), uri.getPath(), uri.getRawQuery()));
        config.setUsername(user[0]);
        config.setPassword(user[1]);
        config.setMaximumPoolSize(size);
        config.setAutoCommit(false);
        pool = new HikariDataSource(config);
    }

    private void read() throws IOException {
        var properties = properties();
        properties.put("enable.auto.commit", true);
        try (var consumer = new KafkaConsumer<String, byte[]>(properties)) {
            consumer.subscribe(List.of(text(job, "topic")));
            while (!meter.isDone()) {
                var records = consumer.poll(Duration.ofSeconds(1));
                long revisions = 0;
                for (var record : records) {
                    revisions += JSON.readValue(record.value(), Transfer.class).revision();
                }
                meter.add(revisions);
                meter.note(records.count());
            }
            consumer.commitSync();
        }
    }

    private void parallelConsumer() throws InterruptedException {
        openPool(THREADS);
        var options = ParallelConsumerOptions.<String, byte[]>builder()
                .consumer(new KafkaConsumer<>(properties()))
                .ordering(ParallelConsumerOptions.ProcessingOrder.KEY)
                .maxConcurrency(THREADS)
                .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(text(job, "topic")));
        processor.poll(context -> apply(context.getSingleConsumerRecord()));
        meter.await();
        processor.closeDrainFirst();
    }

    private void spring(boolean bulk) throws InterruptedException {
        int partitions = job.get("partitions").asInt();
        openPool(partitions);
        ContainerProperties settings = new ContainerProperties(text(job, "topic"));
        settings.setGroupId(text(job, "group"));
        if (bulk) {
            settings.setMessageListener((BatchMessageListener<String, byte[]>) this::merge);
        } else {
            settings.setMessageListener((MessageListener<String, byte[]>) this::apply);
        }
        var factory = new DefaultKafkaConsumerFactory<String, byte[]>(properties());
        var container = new ConcurrentMessageListenerContainer<>(factory, settings);
        container.setConcurrency(partitions);
        container.start();
        meter.await();
        container.stop();
    }

    /** Writes a record in a transaction of its own. */
    private void apply(ConsumerRecord<String, byte[]> record) {
        try (var connection = pool.getConnection()) {
            Transfer transfer = JSON.readValue(record.value(), Transfer.class);
            boolean isNew;
            try (var statement = connection.prepareStatement(
                    "INSERT INTO marker (id) VALUES (?) ON CONFLICT DO NOTHING")) {
                statement.setLong(1, transfer.id());
                isNew = statement.executeUpdate() == 1;
            }
            if (isNew) {
                try (var statement = connection.prepareStatement(
                        """
                        INSERT INTO balance AS b (account, revision, amount) VALUES (?, ?, ?)
                        ON CONFLICT (account) DO UPDATE
                        SET revision = excluded.revision, amount = b.amount + excluded.amount
                        WHERE b.revision = excluded.revision - 1""")) {
                    statement.setString(1, transfer.account());
                    statement.setLong(2, transfer.revision());
                    statement.setLong(3, transfer.amount());
                    if (statement.executeUpdate() != 1) {
                        throw new IllegalStateException("revisions are out of order");
                    }
                }
            }
            connection.commit();
            meter.batch();
            meter.note(1);
        } catch (IOException | SQLException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Writes records in one transaction. */
    private void merge(List<ConsumerRecord<String, byte[]>> records) {
        try (var connection = pool.getConnection()) {
            List<Long> ids = new ArrayList<>();
            // By account: the first and the last revision, and the sum.
            Map<String, Long[]> sums = new HashMap<>();
            for (var record : records) {
                Transfer transfer = JSON.readValue(record.value(), Transfer.class);
                ids.add(transfer.id());
                Long[] sum = sums.computeIfAbsent(
                        transfer.account(), account -> new Long[] {transfer.revision(), transfer.revision() - 1, 0L});
                if (sum[1] != transfer.revision() - 1) {
                    throw new IllegalStateException("revisions are out of order");
                }
                sum[1] = transfer.revision();
                sum[2] += transfer.amount();
            }
            try (var statement = connection.prepareStatement(
                    "INSERT INTO marker (id) SELECT unnest(?::int8[]) ON CONFLICT DO NOTHING")) {
                statement.setArray(1, connection.createArrayOf("int8", ids.toArray()));
                if (statement.executeUpdate() != ids.size()) {
                    throw new IllegalStateException("a record came twice: no case of this loop");
                }
            }
            try (var statement = connection.prepareStatement(
                    """
                    MERGE INTO balance b
                    USING unnest(?::text[], ?::int8[], ?::int8[], ?::int8[])
                        AS r (account, first, last, amount)
                    ON b.account = r.account
                    WHEN MATCHED AND b.revision = r.first - 1 THEN
                        UPDATE SET revision = r.last, amount = b.amount + r.amount
                    WHEN NOT MATCHED AND r.first = 1 THEN
                        INSERT (account, revision, amount) VALUES (r.account, r.last, r.amount)""")) {
                statement.setArray(1, connection.createArrayOf("text", sums.keySet().toArray()));
                for (int column = 0; column < 3; column++) {
                    int number = column;
                    Object[] values = sums.values().stream().map(sum -> sum[number]).toArray();
                    statement.setArray(2 + column, connection.createArrayOf("int8", values));
                }
                if (statement.executeUpdate() != sums.size()) {
                    throw new IllegalStateException("revisions are out of order");
                }
            }
            connection.commit();
            meter.batch();
            meter.note(records.size());
        } catch (IOException | SQLException e) {
            throw new IllegalStateException(e);
        }
    }
}
