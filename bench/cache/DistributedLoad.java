import alluxio.ClientContext;
import alluxio.client.job.JobMasterClient;
import alluxio.conf.Configuration;
import alluxio.job.cmd.load.LoadCliConfig;
import alluxio.job.wire.Status;
import alluxio.worker.job.JobMasterClientContext;
import java.util.Collections;
import java.util.Set;

/**
 * Alluxio's distributedLoad of a path, for comparison: submits the command to the job service as its shell did, and
 * prints how it ended and the seconds from the submission to the end.
 *
 * <p>The shell of 2.9.6 has no such command any more; the job service still carries it out.
 *
 * <p>Run from its source: java -cp 'lib/*' -Dalluxio.job.master.hostname=HOST DistributedLoad.java PATH BATCH_SIZE
 */
public final class DistributedLoad {
  public static void main(String[] arguments) throws Exception {
    Set<String> all = Collections.emptySet();
    int batchSize = Integer.parseInt(arguments[1]);
    LoadCliConfig load = new LoadCliConfig(arguments[0], batchSize, 1, all, all, all, all, false);
    JobMasterClientContext context =
        JobMasterClientContext.newBuilder(ClientContext.create(Configuration.global())).build();
    try (JobMasterClient jobs = JobMasterClient.Factory.create(context)) {
      jobs.connect();
      long began = System.nanoTime();
      long command = jobs.submit(load);
      while (true) {
        Status status = jobs.getCmdStatus(command);
        if (status.isFinished()) {
          System.out.println(status);
          System.out.println("seconds " + (System.nanoTime() - began) / 1e9);
          return;
        }
        Thread.sleep(100);
      }
    }
  }
}
