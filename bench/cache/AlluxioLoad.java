import alluxio.client.file.FileSystem;
import alluxio.grpc.JobProgressReportFormat;
import alluxio.grpc.LoadJobPOptions;
import alluxio.job.JobDescription;
import alluxio.job.LoadJobRequest;

/**
 * Alluxio's own load of a path (what its command `fs load PATH --submit` does), for comparison: submits it, and
 * prints the last progress report and the seconds from the submission to the end.
 *
 * <p>Run from its source: java -cp 'lib/*' -Dalluxio.master.hostname=HOST AlluxioLoad.java PATH
 */
public final class AlluxioLoad {
  public static void main(String[] arguments) throws Exception {
    String path = arguments[0];
    JobDescription job = JobDescription.newBuilder().setPath(path).setType("load").build();
    try (FileSystem files = FileSystem.Factory.create()) {
      long began = System.nanoTime();
      files.submitJob(new LoadJobRequest(path, LoadJobPOptions.newBuilder().build()));
      while (true) {
        String report = files.getJobProgress(job, JobProgressReportFormat.TEXT, false);
        if (report.contains("SUCCEEDED") || report.contains("FAILED") || report.contains("STOPPED")) {
          System.out.println(report);
          System.out.println("seconds " + (System.nanoTime() - began) / 1e9);
          return;
        }
        Thread.sleep(100);
      }
    }
  }
}
