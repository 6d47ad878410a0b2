// What the shim uses of Spark 3.5 to 4.2 and of slf4j, declared and nothing more: with this
// a wheel is built by javac alone, without 100 MB of Spark. That the classes are the same,
// byte for byte, as those compiled against each Spark is tested (tests/system/spark/test_shim.py).
// Each "package" below begins a file of its own; shim.py cuts them.

package org.apache.spark;
public class SparkContext {
  public native boolean isStopped();
  public native String getLocalProperty(String key);
  public native void setLocalProperty(String key, String value);
}

package org.apache.spark.sql;
public abstract class SparkSession {
  public static native SparkSession active();
  public abstract org.apache.spark.SparkContext sparkContext();
}

package org.apache.spark.sql.types;
public class StructType {}

package org.apache.spark.sql.util;
public class CaseInsensitiveStringMap extends java.util.AbstractMap<String, String> {
  public CaseInsensitiveStringMap(java.util.Map<String, String> original) {}
  @Override public native String get(Object key);
  @Override public native java.util.Set<java.util.Map.Entry<String, String>> entrySet();
  public native long getLong(String key, long otherwise);
  public native java.util.Map<String, String> asCaseSensitiveMap();
}

package org.apache.spark.sql.sources;
public interface DataSourceRegister {
  String shortName();
}

package org.apache.spark.sql.connector.expressions;
public interface Transform {}

package org.apache.spark.sql.connector.metric;
public interface CustomMetric {}

package org.apache.spark.sql.connector.catalog;
public enum TableCapability { MICRO_BATCH_READ, BATCH_READ, CONTINUOUS_READ }

package org.apache.spark.sql.connector.catalog;
import org.apache.spark.sql.types.StructType;
public interface Table {
  String name();
  StructType schema();
  java.util.Set<TableCapability> capabilities();
}

package org.apache.spark.sql.connector.catalog;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
public interface SupportsRead extends Table {
  ScanBuilder newScanBuilder(CaseInsensitiveStringMap options);
}

package org.apache.spark.sql.connector.catalog;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
public interface TableProvider {
  StructType inferSchema(CaseInsensitiveStringMap options);
  Table getTable(StructType schema, Transform[] partitioning, java.util.Map<String, String> options);
}

package org.apache.spark.sql.connector.catalog;
public interface SessionConfigSupport extends TableProvider {
  String keyPrefix();
}

package org.apache.spark.sql.connector.read;
public interface InputPartition {}

package org.apache.spark.sql.connector.read;
public interface PartitionReaderFactory {}

package org.apache.spark.sql.connector.read;
public interface Batch {}

package org.apache.spark.sql.connector.read;
public interface ScanBuilder {
  Scan build();
}

package org.apache.spark.sql.connector.read;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.streaming.ContinuousStream;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
public interface Scan {
  org.apache.spark.sql.types.StructType readSchema();
  default String description() { return null; }
  default CustomMetric[] supportedCustomMetrics() { return null; }
  default Batch toBatch() { return null; }
  default ContinuousStream toContinuousStream(String checkpoint) { return null; }
  default MicroBatchStream toMicroBatchStream(String checkpoint) { return null; }
}

package org.apache.spark.sql.connector.read.streaming;
public abstract class Offset {
  public abstract String json();
}

package org.apache.spark.sql.connector.read.streaming;
public interface ReadLimit {
  static ReadLimit allAvailable() { return null; }
}

package org.apache.spark.sql.connector.read.streaming;
public final class ReadAllAvailable implements ReadLimit {}

package org.apache.spark.sql.connector.read.streaming;
public interface SparkDataStream {
  Offset initialOffset();
  Offset deserializeOffset(String json);
  void commit(Offset end);
  void stop();
}

package org.apache.spark.sql.connector.read.streaming;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
public interface MicroBatchStream extends SparkDataStream {
  Offset latestOffset();
  InputPartition[] planInputPartitions(Offset start, Offset end);
  PartitionReaderFactory createReaderFactory();
}

package org.apache.spark.sql.connector.read.streaming;
public interface ContinuousStream extends SparkDataStream {}

package org.apache.spark.sql.connector.read.streaming;
public interface ReportsSourceMetrics extends SparkDataStream {
  java.util.Map<String, String> metrics(java.util.Optional<Offset> consumed);
}

package org.apache.spark.sql.connector.read.streaming;
public interface SupportsAdmissionControl extends SparkDataStream {
  default ReadLimit getDefaultReadLimit() { return null; }
  Offset latestOffset(Offset start, ReadLimit limit);
  default Offset reportLatestOffset() { return null; }
}

package org.apache.spark.sql.connector.read.streaming;
public interface SupportsTriggerAvailableNow extends SupportsAdmissionControl {
  void prepareForTriggerAvailableNow();
}

package org.slf4j;
public interface Logger {
  void error(String format, Object argument);
}

package org.slf4j;
public class LoggerFactory {
  public static native Logger getLogger(Class<?> of);
}
