package safeconsumer.spark;

import static java.net.URLEncoder.encode;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.apache.spark.sql.connector.catalog.TableCapability.*;

import java.io.*;
import java.net.URLDecoder;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.BiFunction;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.*;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.connector.read.streaming.*;
import org.apache.spark.sql.sources.*;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.LoggerFactory;

/**
 * Spark's own Kafka source, with one additional question: at which offsets may a batch end?
 *
 * <p>The question goes to the decider of the session (design/spark.md). This class knows no holds, and
 * moves no offset without an answer that allows the move.
 */
public final class SafeKafkaProvider
    implements SessionConfigSupport, DataSourceRegister, CreatableRelationProvider {
  private static final String OFFICIAL = "org.apache.spark.sql.kafka010.KafkaSourceProvider";
  private static final Map<String, Decider> DECIDERS = new ConcurrentHashMap<>();
  private static final long PATIENCE = 10_000; // milliseconds

  // Created on demand, because Spark creates a provider whenever it looks up any format.
  private TableProvider official;

  /** Returns the version of the questions and their format. */
  public static String protocol() { return "6"; }

  /** Registers a decider under its name, once it has answered. */
  public static void register(String name, BiFunction<String, String, String> ask) {
    Decider made = new Decider(name, ask);
    made.askSoon("hello", Map.of());
    DECIDERS.put(name, made);
  }

  /** Forgets a decider: its streams keep the decider, but no new stream finds it. */
  public static void forget(String name) { DECIDERS.remove(name); }

  /** Fails if no decider has that name, or if it does not answer; the message shows a late answer. */
  public static void hello(String name) { DECIDERS.get(name).askSoon("hello", Map.of()); }

  @Override public String shortName() { return "safekafka"; }
  @Override public String keyPrefix() { return "safekafka"; } // spark.datasource.safekafka.*

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

  /** Refuses df.write with an explanation; without this method Spark reports an internal error. */
  @Override public BaseRelation createRelation(SQLContext sql, SaveMode mode,
      scala.collection.immutable.Map<String, String> options, Dataset<Row> rows) {
    throw new UnsupportedOperationException("safekafka only reads; write with format(\"kafka\")");
  }

  /** Returns the options with our defaults; the decider refuses wrong options with an error message. */
  private static CaseInsensitiveStringMap completed(CaseInsensitiveStringMap options) {
    Map<String, String> given = options.asCaseSensitiveMap();
    Map<String, String> all = asMap(
        decider(options).askSoon("complete", Map.of("options", asText(given))).get("options"));
    all.putAll(given);
    return new CaseInsensitiveStringMap(all);
  }

  private static Decider decider(CaseInsensitiveStringMap options) {
    Decider known = DECIDERS.get(options.getOrDefault("holds.decider", ""));
    if (known == null) {
      throw new IllegalArgumentException("safekafka has no holds to obey in this session: call "
          + "safeconsumer.spark.register(spark) with it first");
    }
    return known;
  }

  /** Returns facts as text, as in a URL's query. */
  private static String asText(Map<String, String> facts) {
    StringJoiner all = new StringJoiner("&");
    facts.forEach((name, value) ->
        all.add(encode(name, UTF_8) + "=" + encode(Objects.toString(value, ""), UTF_8)));
    return all.toString();
  }

  private static Map<String, String> asMap(String text) {
    Map<String, String> facts = new HashMap<>();
    for (String pair : text.split("&")) {
      String[] parts = (pair + "=").split("=", -1);
      facts.put(URLDecoder.decode(parts[0], UTF_8), URLDecoder.decode(parts[1], UTF_8));
    }
    return facts;
  }

  /** Returns Kafka's records, one per line, because Python would need six calls for each record. */
  public static String asText(Iterable<?> records) throws ReflectiveOperationException {
    StringJoiner lines = new StringJoiner("\n");
    for (Object one : records) {
      Map<String, String> facts = new HashMap<>();
      for (String name : List.of("topic", "offset", "timestamp", "key", "value")) {
        Optional.ofNullable(one.getClass().getMethod(name).invoke(one)) // a tombstone has no value
            .ifPresent(value -> facts.put(name, value.toString()));
      }
      lines.add(asText(facts));
    }
    return lines.toString();
  }

  private TableProvider official() {
    try {
      if (official == null) {
        Class<?> kind = Class.forName(OFFICIAL, true, SafeKafkaProvider.class.getClassLoader());
        official = (TableProvider) kind.getDeclaredConstructor().newInstance();
      }
      return official;
    } catch (ReflectiveOperationException error) {
      throw new IllegalArgumentException(
          "Spark's Kafka connector is missing; safeconsumer.spark.packages() names it", error);
    }
  }

  /** There is no valid answer. Pyspark turns its parent class into an error without a trace. */
  private static final class Undecided extends IllegalArgumentException {
    Undecided(String why) { super(why); }
  }

  private record Decider(String name, BiFunction<String, String, String> python) {
    /** Returns the answer if it belongs to this question and is a consent; a refusal ends the query. */
    Map<String, String> ask(String question, Map<String, String> facts) {
      String identity = "protocol=" + protocol() + "&decider=" + name + "&number=" + UUID.randomUUID();
      String text = python.apply(question, identity + "&" + asText(facts));
      if (text == null || !text.startsWith(identity + "&verdict=")) {
        throw new Undecided("the reply does not answer this question");
      }
      Map<String, String> answer = asMap(text);
      switch (answer.get("verdict")) {
        case "go": return answer;
        case "refuse": throw new IllegalArgumentException(answer.get("why"));
        default: throw new Undecided("the decision failed: " + answer.get("why"));
      }
    }

    /** Asks on a separate thread, for questions before the stream has its own thread. */
    Map<String, String> askSoon(String question, Map<String, String> facts) {
      FutureTask<Map<String, String>> answer = new FutureTask<>(() -> ask(question, facts));
      daemon(answer).start();
      return within(PATIENCE, answer);
    }
  }

  private static Map<String, String> within(long patience, Future<Map<String, String>> answer) {
    try {
      return answer.get(patience, TimeUnit.MILLISECONDS);
    } catch (TimeoutException slow) {
      throw new Undecided("no decision within " + patience + " ms");
    } catch (ExecutionException failed) {
      if (failed.getCause() instanceof IllegalArgumentException refusal) {
        throw refusal;
      }
      throw new Undecided("the process that registered this session does not answer");
    } catch (InterruptedException stopping) { // Spark treats this error as the end of a query that it stops
      throw new UncheckedIOException(new InterruptedIOException("the query is being stopped"));
    }
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "safekafka-decision");
    thread.setDaemon(true);
    return thread;
  }

  private record SafeTable(SupportsRead official) implements SupportsRead {
    @Override public String name() { return "safekafka"; }
    @Override public StructType schema() { return official.schema(); } // Spark 3.5 and 4.0 call this

    @Override
    public Set<TableCapability> capabilities() {
      // All except the first are announced only so that they can be refused with an explanation.
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

    @Override public Batch toBatch() {
      throw new UnsupportedOperationException(
          "safekafka is for streams; read batches with format(\"kafka\")");
    }

    @Override public ContinuousStream toContinuousStream(String checkpoint) {
      throw new UnsupportedOperationException(
          "safekafka has no continuous mode; use a processingTime or availableNow trigger");
    }

    @Override public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new SafeStream(official.toMicroBatchStream(checkpoint), options, checkpoint);
    }
  }

  private static final class SafeStream
      implements SupportsTriggerAvailableNow, ReportsSourceMetrics, MicroBatchStream {
    private final MicroBatchStream official;
    private final SupportsTriggerAvailableNow feed;
    private final CaseInsensitiveStringMap options;
    private final Decider decider;
    private final SparkContext spark = SparkSession.active().sparkContext();
    private final ExecutorService asking = Executors.newSingleThreadExecutor(SafeKafkaProvider::daemon);
    private final Map<String, String> about = new HashMap<>();
    private Future<Map<String, String>> answer; // null until the stream is opened
    private Map<String, String> last = Map.of(); // the last answer; without an answer everything is held
    private boolean isOpen;
    private String trouble = "";

    SafeStream(MicroBatchStream official, CaseInsensitiveStringMap options, String checkpoint) {
      this.official = official;
      this.feed = (SupportsTriggerAvailableNow) official;
      this.options = options;
      this.decider = decider(options);
      about.putAll(Map.of("stream", UUID.randomUUID().toString(), "checkpoint", checkpoint));
      name(spark);
      about.put("ends", Objects.requireNonNull(decider.askSoon("made", about).get("ends")));
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      if (spark.isStopped()) { // Spark does not end idle queries
        throw new IllegalStateException("safekafka: the session of this query was stopped");
      }
      name(spark);
      String before = trouble;
      Offset end = start;
      try {
        end = planned(start, limit);
        trouble = "";
      } catch (Undecided none) {
        trouble = none.getMessage();
        last = Map.of("metric.held", "@all", "metric.heldBecause", trouble);
      }
      if (!trouble.equals(before)) {
        LoggerFactory.getLogger(SafeKafkaProvider.class).error("safekafka: {}",
            trouble.isEmpty() ? "there are decisions again" : "everything is held, " + trouble);
      }
      if (!trouble.isEmpty() && about.get("ends").equals("yes")) {
        throw new IllegalStateException("safekafka read nothing, as nothing was decided: " + trouble);
      }
      if (last.containsKey("description")) { // Spark resets it for each batch
        String name = spark.getLocalProperty("spark.job.description");
        spark.setLocalProperty("spark.job.description", name + "\n" + last.get("description"));
      }
      return end;
    }

    private void name(SparkContext spark) {
      about.put("query", spark.getLocalProperty("sql.streaming.queryId"));
      about.put("batch", Objects.toString(spark.getLocalProperty("spark.job.description"), ""));
    }

    private void open() {
      if (!isOpen) { // not earlier, as Spark may never stop a stream that it never uses
        ask("open", Map.of("options", asText(options.asCaseSensitiveMap())));
        isOpen = true;
      }
    }

    private Offset planned(Offset start, ReadLimit limit) {
      open();
      String kind = limit instanceof ReadAllAvailable ? "none" : limit instanceof ReadMaxRows ? "maximum" : "other";
      // With a minimum the limiter waits for rows, so each batch may call it only once.
      Offset end = feed.latestOffset(start, kind.equals("maximum") ? limit : ReadLimit.allAvailable());
      noteLatest(end);
      ask("plan", Map.of("start", start.json(), "end", json(end), "limit", kind));
      if (last.containsKey("from")) {
        // The limiter divides its quota among partitions with records to read; here held partitions have none.
        end = feed.latestOffset(official.deserializeOffset(last.get("from")), limit);
        noteLatest(end);
        ask("freeze", Map.of("end", json(end)));
      }
      if (!last.containsKey("end")) {
        throw new Undecided("the answer lacks an end");
      }
      return end == null ? null : official.deserializeOffset(last.get("end")); // null if there are no topics yet
    }

    private void noteLatest(Offset end) {
      about.put("latest", json(end == null ? null : feed.reportLatestOffset()));
    }

    private static String json(Offset offset) { return offset == null ? "{}" : offset.json(); }

    /** Asks the decider, and keeps the answer if it arrives in time. */
    private void ask(String question, Map<String, String> more) {
      if (answer != null && !answer.isDone()) {
        throw new Undecided("an earlier decision has not returned yet");
      }
      Map<String, String> facts = new HashMap<>(about);
      facts.putAll(more);
      answer = asking.submit(() -> decider.ask(question, facts));
      last = within(options.getLong("holds.decisionTimeoutMs", PATIENCE), answer);
    }

    /** Returns the official source's metrics, and the metrics of the last answer. */
    @Override public Map<String, String> metrics(Optional<Offset> consumed) {
      if (isOpen && answer.isDone() && !asking.isShutdown()) { // a batch has run
        Map<String, String> which = Map.of("stream", about.get("stream"));
        asking.submit(() -> decider.ask("ended", which));
      }
      Map<String, String> all = new HashMap<>();
      if (trouble.isEmpty()) { // otherwise the source may name partitions that the plan never had
        try {
          all.putAll(((ReportsSourceMetrics) official).metrics(consumed));
        } catch (NullPointerException unplanned) {
          // When Spark 4.1 replays a batch, it requests metrics of offsets that it has not planned.
        }
      }
      last.keySet().stream().filter(key -> key.startsWith("metric."))
          .forEach(key -> all.put(key.substring("metric.".length()), last.get(key)));
      return all;
    }

    @Override public void stop() {
      asking.submit(() -> decider.ask("close", about));
      asking.shutdown();
      try {
        asking.awaitTermination(3, TimeUnit.SECONDS); // so that the last offsets are committed
      } catch (InterruptedException stopping) {
        Thread.currentThread().interrupt();
      }
      official.stop();
    }

    @Override public void prepareForTriggerAvailableNow() {
      about.put("ends", "yes");
      feed.prepareForTriggerAvailableNow();
    }

    @Override public Offset latestOffset() { return official.latestOffset(); }
    @Override public Offset reportLatestOffset() { // before the first plan the source would fail
      return about.containsKey("latest") ? feed.reportLatestOffset() : null;
    }
    @Override public ReadLimit getDefaultReadLimit() { return feed.getDefaultReadLimit(); }
    @Override public Offset initialOffset() { return official.initialOffset(); }
    @Override public Offset deserializeOffset(String json) { return feed.deserializeOffset(json); }

    @Override public InputPartition[] planInputPartitions(Offset start, Offset end) {
      if (!isOpen) { // the batch was planned before a restart, and runs again in full
        name(SparkSession.active().sparkContext());
        try {
          open();
          ask("again", Map.of("start", json(start), "end", json(end)));
        } catch (Undecided none) { // the first plan reports the error
        }
      }
      String from = last.get("start"); // only an answer that skips offsets has a start
      return official.planInputPartitions(from == null ? start : official.deserializeOffset(from), end);
    }
    @Override public PartitionReaderFactory createReaderFactory() { return official.createReaderFactory(); }
    @Override public void commit(Offset end) { official.commit(end); }
    @Override public String toString() { return "Safe" + official; }
  }
}
