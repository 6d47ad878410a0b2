package safeconsumer.spark;

import static java.net.URLEncoder.encode;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.apache.spark.sql.connector.catalog.TableCapability.*;

import java.util.*;
import java.util.concurrent.*;
import java.util.function.BiFunction;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.connector.read.streaming.*;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Spark's own Kafka source, with one question added: which offsets may a batch end at?
 *
 * <p>The question is asked in Python, in the driver. Nothing here knows what a hold is; it knows
 * that without an answer nothing moves.
 */
public final class SafeKafkaProvider implements TableProvider, DataSourceRegister {
  private static final String OFFICIAL = "org.apache.spark.sql.kafka010.KafkaSourceProvider";
  private static final Logger LOG = LoggerFactory.getLogger(SafeKafkaProvider.class);

  /** Takes a question and a map of facts, which it completes; returns why not, or nothing. */
  private static volatile BiFunction<String, Map<String, String>, String> decider;

  // Only when it is needed: Spark makes one of these whenever it looks up any format.
  private TableProvider official;

  /** Called once per session by safeconsumer.spark.register. */
  public static void decideBy(BiFunction<String, Map<String, String>, String> python) {
    decider = python;
  }

  @Override public String shortName() { return "safekafka"; }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return official().inferSchema(completed(options));
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> options) {
    CaseInsensitiveStringMap complete = completed(new CaseInsensitiveStringMap(options));
    Table table = official().getTable(schema, partitioning, complete.asCaseSensitiveMap());
    return new SafeTable((SupportsRead) table);
  }

  /** The options with our defaults in them; refuses, with Python's words, those that are wrong. */
  private static CaseInsensitiveStringMap completed(CaseInsensitiveStringMap options) {
    Map<String, String> facts = inOneText(options);
    String refusal = asked().apply("complete", facts);
    if (!refusal.isEmpty()) {
      throw new IllegalArgumentException(refusal);
    }
    facts.remove("options");
    facts.putAll(options.asCaseSensitiveMap());
    return new CaseInsensitiveStringMap(facts);
  }

  /** As in a URL's query: Python would need some ten milliseconds for each entry of a map. */
  private static Map<String, String> inOneText(CaseInsensitiveStringMap options) {
    StringJoiner all = new StringJoiner("&");
    options.asCaseSensitiveMap().forEach((name, value) ->
        all.add(encode(name, UTF_8) + "=" + encode(Objects.toString(value, ""), UTF_8)));
    return new HashMap<>(Map.of("options", all.toString()));
  }

  private static BiFunction<String, Map<String, String>, String> asked() {
    if (decider == null) {
      throw new IllegalStateException(
          "safekafka has no holds to obey: call safeconsumer.spark.register(spark) first");
    }
    return decider;
  }

  private TableProvider official() {
    try {
      if (official == null) {
        Class<?> kind = Class.forName(OFFICIAL, true, SafeKafkaProvider.class.getClassLoader());
        official = (TableProvider) kind.getDeclaredConstructor().newInstance();
      }
      return official;
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(
          "Spark's Kafka connector is missing; safeconsumer.spark.packages() names it", error);
    }
  }

  private record SafeTable(SupportsRead official) implements SupportsRead {
    @Override public String name() { return "safekafka"; }

    @Override public Column[] columns() { return official.columns(); }
    @Override public StructType schema() { return official.schema(); } // Spark 3.5 and 4.0 ask

    @Override
    public Set<TableCapability> capabilities() {
      // All but the first are announced only to be refused in words.
      return Set.of(MICRO_BATCH_READ, BATCH_READ, CONTINUOUS_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      CaseInsensitiveStringMap complete = completed(options);
      Scan scan = official.newScanBuilder(complete).build();
      return () -> new SafeScan(scan, complete);
    }
  }

  private record SafeScan(Scan official, CaseInsensitiveStringMap options) implements Scan {
    @Override public StructType readSchema() { return official.readSchema(); }
    @Override public String description() { return "safekafka"; }
    @Override public CustomMetric[] supportedCustomMetrics() { return official.supportedCustomMetrics(); }

    @Override
    public Batch toBatch() {
      throw new UnsupportedOperationException(
          "safekafka is for streams; read batches with format(\"kafka\")");
    }

    @Override
    public ContinuousStream toContinuousStream(String checkpoint) {
      throw new UnsupportedOperationException(
          "safekafka has no continuous mode; use a processingTime or availableNow trigger");
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new SafeStream(official, checkpoint, options);
    }
  }

  private static final class SafeStream
      implements SupportsTriggerAvailableNow, ReportsSourceMetrics, MicroBatchStream {
    private final MicroBatchStream official;
    private final SupportsTriggerAvailableNow feed;
    private final BiFunction<String, Map<String, String>, String> python = asked();
    private final ExecutorService asking = Executors.newSingleThreadExecutor(SafeStream::daemon);
    private final long patience;
    private final String id;
    private Map<String, String> facts = new HashMap<>();
    private Future<String> answer = CompletableFuture.completedFuture("");

    SafeStream(Scan scan, String checkpoint, CaseInsensitiveStringMap options) {
      this.patience = options.getLong("holds.decisionTimeoutMs", 10_000);
      Map<String, String> opened = inOneText(options);
      this.official = scan.toMicroBatchStream(checkpoint);
      this.feed = (SupportsTriggerAvailableNow) official;
      String refusal = python.apply("open", opened);
      if (!refusal.isEmpty()) {
        official.stop();
        throw new IllegalArgumentException(refusal);
      }
      this.id = opened.get("stream");
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      facts = new ConcurrentHashMap<>(Map.of("stream", id, "start", start.json()));
      Offset latest = feed.latestOffset(start, ReadLimit.allAvailable());
      facts.put("latest", latest == null ? "{}" : latest.json()); // null: nothing to subscribe to
      if (!isDecided("plan")) {
        return start;
      }
      // The limiter shares its quota among those with something to read: held ones have nothing.
      Offset from = official.deserializeOffset(facts.get("from"));
      Offset end = limit instanceof ReadAllAvailable ? latest : feed.latestOffset(from, limit);
      facts.put("end", end == null ? "{}" : end.json());
      boolean isFrozen = end != null && isDecided("freeze");
      return isFrozen ? official.deserializeOffset(facts.get("end")) : end == null ? null : start;
    }

    /** Whether Python decided, and in time; if it did not, nothing may move. */
    private boolean isDecided(String question) {
      if (!answer.isDone()) {
        return heldBecause("an earlier decision has not returned yet");
      }
      Map<String, String> asked = facts;
      answer = asking.submit(() -> python.apply(question, asked));
      String refusal;
      try {
        refusal = answer.get(patience, TimeUnit.MILLISECONDS);
      } catch (TimeoutException slow) {
        return heldBecause("no decision within " + patience + " ms");
      } catch (ExecutionException failed) {
        LOG.error("safekafka: the decision failed", failed.getCause());
        return heldBecause("the decision failed");
      } catch (InterruptedException stopping) {
        Thread.currentThread().interrupt();
        return heldBecause("the query is being stopped");
      }
      if (!refusal.isEmpty()) {
        throw new IllegalStateException(refusal);
      }
      return true;
    }

    private boolean heldBecause(String reason) {
      facts = Map.of("metric.held", "@all", "metric.heldBecause", reason);
      LOG.error("safekafka: everything is held, {}", reason);
      return false;
    }

    /** What the official source reports, and what Python said of the batch planned last. */
    @Override
    public Map<String, String> metrics(Optional<Offset> consumed) {
      Map<String, String> all = new HashMap<>(((ReportsSourceMetrics) official).metrics(consumed));
      facts.keySet().stream().filter(key -> key.startsWith("metric."))
          .forEach(key -> all.put(key.substring("metric.".length()), facts.get(key)));
      return all;
    }

    @Override
    public void stop() {
      asking.submit(() -> python.apply("close", new HashMap<>(Map.of("stream", id))));
      asking.shutdown();
      official.stop();
    }

    @Override public Offset latestOffset() { return official.latestOffset(); }
    @Override public Offset reportLatestOffset() { return feed.reportLatestOffset(); }
    @Override public ReadLimit getDefaultReadLimit() { return feed.getDefaultReadLimit(); }

    @Override public void prepareForTriggerAvailableNow() { feed.prepareForTriggerAvailableNow(); }
    @Override public Offset initialOffset() { return official.initialOffset(); }
    @Override public Offset deserializeOffset(String json) { return feed.deserializeOffset(json); }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return official.planInputPartitions(start, end);
    }
    @Override public PartitionReaderFactory createReaderFactory() { return official.createReaderFactory(); }
    @Override public void commit(Offset end) { official.commit(end); }
    @Override public String toString() { return "Safe" + official; }

    private static Thread daemon(Runnable work) {
      Thread thread = new Thread(work, "safekafka-decision");
      thread.setDaemon(true);
      return thread;
    }
  }
}
