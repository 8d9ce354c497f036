import alluxio.AlluxioURI;
import alluxio.client.file.FileInStream;
import alluxio.client.file.FileSystem;
import alluxio.client.file.URIStatus;
import alluxio.grpc.ListStatusPOptions;
import java.security.MessageDigest;
import java.util.HexFormat;

/** Reads all files below a folder by Alluxio's Java client, and prints a line for each, as sha256sum does. */
public final class ReadAll {
  public static void main(String[] arguments) throws Exception {
    AlluxioURI folder = new AlluxioURI(arguments[0]);
    ListStatusPOptions all = ListStatusPOptions.newBuilder().setRecursive(true).build();
    try (FileSystem files = FileSystem.Factory.create()) {
      for (URIStatus status : files.listStatus(folder, all)) {
        if (!status.isFolder()) {
          String name = status.getPath().substring(folder.getPath().length() + 1);
          System.out.println(hash(files, status) + "  " + name);
        }
      }
    }
  }

  private static String hash(FileSystem files, URIStatus status) throws Exception {
    MessageDigest digest = MessageDigest.getInstance("SHA-256");
    byte[] piece = new byte[1 << 16];
    try (FileInStream content = files.openFile(new AlluxioURI(status.getPath()))) {
      for (int count = content.read(piece); count >= 0; count = content.read(piece)) {
        digest.update(piece, 0, count);
      }
    }
    return HexFormat.of().formatHex(digest.digest());
  }
}
