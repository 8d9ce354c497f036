package io.tdcs.names;

import alluxio.underfs.UnderFileSystemConfiguration;
import alluxio.util.CommonUtils;
import java.io.FileNotFoundException;
import java.io.IOException;

/**
 * What of a source may be named: what lies below the folder or prefix that was mounted.
 *
 * <p>A request for a block carries the path at which its source is read; without this it could name any file that the
 * worker sees, and any object of the bucket.
 */
final class Confinement {
  /** Every mount of a Dataset has it. Mounts that differ in it never share one reader of their source. */
  private static final String DATASET = "tdcs.source.digest";

  private static final String SCHEME_END = "://";

  private final boolean confines;
  private final boolean files;
  private final String bucket;
  private final String root;

  /**
   * Of a source that was mounted.
   *
   * @param mounted the mounted path, as the source calls it
   * @param files whether it is a folder, and not a prefix of a bucket
   */
  Confinement(String mounted, UnderFileSystemConfiguration conf, boolean files) {
    this.files = files;
    int begin = files ? 0 : mounted.indexOf('/', mounted.indexOf(SCHEME_END) + SCHEME_END.length());
    bucket = begin < 0 ? mounted : mounted.substring(0, begin);
    root = files ? SharedFolder.plain(mounted).toString() : begin < 0 ? "" : withoutEnd(mounted.substring(begin));
    // A master also reads its journal and the folder at its root by such a reader, and asks for nothing else.
    confines = confines(conf);
  }

  /** Whether a source is a Dataset's, or this process reads no other ones. */
  static boolean confines(UnderFileSystemConfiguration conf) {
    return conf.getMountSpecificConf().containsKey(DATASET)
        || CommonUtils.PROCESS_TYPE.get() == CommonUtils.ProcessType.WORKER;
  }

  /** Refuse a path that lies outside, as it is spelled: where links lead is {@link SharedFolder}'s matter. */
  void check(String path) throws IOException {
    if (!confines) {
      return;
    }
    boolean inside = files ? SharedFolder.plain(path).startsWith(root) : below(withoutEnd(path));
    if (!inside) {
      throw new FileNotFoundException(path + " lies outside of what was mounted, " + bucket + root);
    }
  }

  /** Of a bucket, whose objects Alluxio names with it or without it. */
  private boolean below(String path) {
    String key = path;
    if (path.equals(bucket) || path.startsWith(bucket + "/")) {
      key = path.substring(bucket.length());
    } else if (path.indexOf(SCHEME_END) >= 0 && path.indexOf(SCHEME_END) < path.indexOf('/')) {
      return false; // of another bucket, or by another scheme
    }
    key = key.isEmpty() || key.startsWith("/") ? key : "/" + key;
    if ((key + "/").contains("/../") || (key + "/").contains("/./")) {
      return false; // stores may follow them
    }
    return key.equals(root) || key.startsWith(root + "/");
  }

  private static String withoutEnd(String path) {
    int end = path.length();
    while (end > 0 && path.charAt(end - 1) == '/') {
      end--;
    }
    return path.substring(0, end);
  }
}
