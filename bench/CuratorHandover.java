/*
 * Hand-over of Curator's own lock: how long after a release was begun has the
 * next in line been granted?
 *
 * usage: CuratorHandover -s HOST:PORT[,HOST:PORT...]
 *
 * It connects, and then carries out what it reads, line by line, until an empty
 * line or the end of its input:
 *
 *     ROUNDS GAP_MS
 *
 * and answers each with one line, a JSON object with the times of all rounds.
 *
 * Two threads, each with a session and an InterProcessMutex of its own, take
 * turns, as the connections of handover.c do: A holds, B asks and waits.  When
 * a third session sees both claims, nothing happens for GAP_MS more.  Then A
 * calls release(), and the clock runs until B's acquire() has returned.  A grant
 * before the release is an overlap, and an exception is a wrong answer.
 */

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

public class CuratorHandover {

    static final int SESSION_TIMEOUT_MS = 30000;
    static final int CONNECT_TIMEOUT_MS = 30000;
    static final int BOUND_MS = 10000;

    static final String PATH = "/curator/handover";

    /* A thread with a session. */
    static class Client {
        final CuratorFramework session;
        final InterProcessMutex lock;
        final ExecutorService thread = Executors.newSingleThreadExecutor();

        Client(String servers) throws IOException, InterruptedException {
            session = connect(servers);
            lock = new InterProcessMutex(session, PATH);
        }

        /* When it was granted. */
        Future<Long> acquire() {
            return thread.submit(() -> {
                if (!lock.acquire(BOUND_MS, TimeUnit.MILLISECONDS)) {
                    throw new IOException("no grant in time");
                }
                return System.nanoTime();
            });
        }

        /* When it began, and when it was done. */
        Future<long[]> release() {
            return thread.submit((Callable<long[]>) () -> {
                long began = System.nanoTime();
                lock.release();
                return new long[] { began, System.nanoTime() };
            });
        }

        void close() {
            thread.shutdown();
            session.close();
        }
    }

    /* A line of the input, while it is carried out. */
    static class Run {
        final int rounds;
        final long gap;
        final List<Long> grants = new ArrayList<>();
        final List<Long> releases = new ArrayList<>();
        int overlaps;
        int wrong;

        Run(String line) {
            String[] words = line.trim().split(" +");

            rounds = Integer.parseInt(words[0]);
            gap = Long.parseLong(words[1]);
        }

        String carryOut() throws InterruptedException {
            try {
                clients[0].acquire().get();

                for (int i = 0; i < rounds; i++) {
                    handOver(clients[i % 2], clients[1 - i % 2]);
                }

                clients[rounds % 2].release().get();

            } catch (Exception e) {
                System.err.println("CuratorHandover: " + e);
                wrong++;
            }

            return "{\"handover_us\":" + micros(grants)
                   + ",\"release_us\":" + micros(releases)
                   + ",\"overlaps\":" + overlaps
                   + ",\"wrong_answers\":" + wrong + "}";
        }

        void handOver(Client from, Client to) throws Exception {
            Future<Long> grant = to.acquire();

            while (eye.getChildren().forPath(PATH).size() < 2) {
                Thread.sleep(1);
            }

            Thread.sleep(gap);

            long[] release = from.release().get();
            long granted = grant.get();

            if (granted < release[0]) {
                overlaps++;
                return;
            }

            grants.add(granted - release[0]);
            releases.add(release[1] - release[0]);
        }
    }

    static final Client[] clients = new Client[2];
    static CuratorFramework eye;

    static CuratorFramework connect(String servers)
        throws IOException, InterruptedException
    {
        CuratorFramework session = CuratorFrameworkFactory.builder()
            .connectString(servers)
            .sessionTimeoutMs(SESSION_TIMEOUT_MS)
            .connectionTimeoutMs(CONNECT_TIMEOUT_MS)
            .retryPolicy(new RetryNTimes(3, 100))
            .ensembleTracker(false)
            .build();

        session.start();

        if (!session.blockUntilConnected(CONNECT_TIMEOUT_MS,
                                         TimeUnit.MILLISECONDS))
        {
            throw new IOException("no connection to " + servers);
        }

        return session;
    }

    static String micros(List<Long> times) {
        return times.stream().map(time -> Long.toString(time / 1000))
               .collect(Collectors.joining(",", "[", "]"));
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 2 || !arguments[0].equals("-s")) {
            System.err.println("usage: CuratorHandover "
                               + "-s HOST:PORT[,HOST:PORT...]");
            System.exit(2);
        }

        eye = connect(arguments[1]);
        clients[0] = new Client(arguments[1]);
        clients[1] = new Client(arguments[1]);

        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in));

        for (String line = in.readLine(); line != null && !line.isBlank();
             line = in.readLine())
        {
            System.out.println(new Run(line).carryOut());
            System.out.flush();
        }

        clients[0].close();
        clients[1].close();
        eye.close();
        System.exit(0);
    }
}
