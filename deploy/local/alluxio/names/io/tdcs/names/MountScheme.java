package io.tdcs.names;

import java.util.regex.Pattern;

/**
 * The scheme of a bucket that is mounted: one for each mount, so that no mount of a bucket's name is in another's way.
 *
 * <p>{@code tdcs.alluxio.mount_uri} gives it to a mount.
 */
final class MountScheme {
  private static final Pattern OF_A_MOUNT = Pattern.compile("^s3-[0-9a-f]{16}://");

  private MountScheme() {}

  /** A path as the source calls it; one without such a scheme stays as it is. */
  static String forSource(String path) {
    return OF_A_MOUNT.matcher(path).replaceFirst("s3://");
  }
}
