/*
 * Load of Curator's own lock: threads that acquire and release in a loop.
 *
 * usage: CuratorLoad -s HOST:PORT[,HOST:PORT...] [-n SESSIONS]
 *
 * It connects, and then carries out what it reads, line by line, until an empty
 * line or the end of its input:
 *
 *     WORK CLIENTS SECONDS WARM_UP
 *
 * and answers each with one line, the JSON object that load.c prints.  One
 * process for all runs: what Java's compilers have found out stays.
 *
 * WORK is "own", each client has a lock of its own, or "hot", all share one.  A
 * client is a thread, for Curator's calls wait, and has an InterProcessMutex of
 * its own, also for the shared lock: the threads that wait in one object are
 * all woken when one of them is meant.  The objects are kept from run to run.
 * Nothing is revocable, so only who waits watches a znode.
 *
 * The clients are dealt out to a few sessions in turn.  ZooKeeper answers what
 * one session asks in its order, so a list waits for the disk when another
 * client's write is in front of it: eight sessions did more than one, two or
 * four with many clients, more than eight did no more, and on the one shared
 * lock it is all the same.
 *
 * The rules are those of load.c.  What ends in the first WARM_UP seconds is not
 * counted; after the last second nothing is begun, and what was begun is
 * brought to its end.  On the shared lock a client holds from when acquire()
 * has returned until release() is called; who is granted the lock while
 * another one holds is an overlap.  A wrong answer is an exception, the first
 * of which is shown on stderr.  There are no fencing tokens, so none that goes
 * backwards.
 */

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

public class CuratorLoad {

    static final int SESSIONS = 8;
    static final int SESSION_TIMEOUT_MS = 30000;
    static final int CONNECT_TIMEOUT_MS = 30000;

    static final int CLIENTS_MAX = 4096;
    static final long STACK = 256 * 1024;

    static final double SECOND_NS = 1e9;

    /* what is under way at the end has so long to end */
    static final long DRAIN_NS = 30000000000L;

    /* beyond that a thread is given up */
    static final long GIVE_UP_NS = 10000000000L;

    /* As histogram.h has it: 32 buckets to an octave. */
    static class Histogram {
        static final int BITS = 5;
        static final int SUB = 1 << BITS;

        final long[] buckets = new long[(64 - BITS + 1) * SUB];
        long n;
        long max;

        synchronized void add(long value) {
            n++;
            max = Math.max(max, value);

            if (value < SUB) {
                buckets[(int) value]++;
                return;
            }

            int shift = 63 - Long.numberOfLeadingZeros(value) - BITS;
            buckets[shift * SUB + (int) (value >> shift)]++;
        }

        /* the middle of the bucket in which the part q is reached */
        double quantile(double q) {
            long rank = (long) (q * n);
            long seen = 0;

            for (int i = 0; i < buckets.length; i++) {
                seen += buckets[i];

                if (seen > rank) {
                    if (i < SUB) {
                        return i;
                    }

                    int shift = i / SUB - 1;
                    return (i - shift * SUB + 0.5) * (1L << shift);
                }
            }

            return max;
        }

        synchronized String members(String name) {
            return String.format(Locale.ROOT, "\"%s_p50_us\":%.1f,"
                                 + "\"%s_p99_us\":%.1f,\"%s_max_us\":%.1f",
                                 name, quantile(0.50) / 1e3,
                                 name, quantile(0.99) / 1e3,
                                 name, max / 1e3);
        }
    }

    /* A line of the input, while it is carried out. */
    static class Run {
        final boolean hot;
        final int clients;
        final double seconds;
        final double warmUp;

        final CountDownLatch start = new CountDownLatch(1);
        long countFrom;
        long countUntil;

        final Histogram cycles = new Histogram();
        final Histogram acquires = new Histogram();
        final AtomicLong total = new AtomicLong();
        final AtomicLong overlaps = new AtomicLong();
        final AtomicLong wrong = new AtomicLong();
        final AtomicInteger busy = new AtomicInteger();
        final AtomicReference<Client> holder = new AtomicReference<>();

        Run(String line) {
            String[] words = line.trim().split(" +");

            if (words.length != 4
                || !(words[0].equals("own") || words[0].equals("hot")))
            {
                throw new IllegalArgumentException(line);
            }

            hot = words[0].equals("hot");
            clients = Integer.parseInt(words[1]);
            seconds = Double.parseDouble(words[2]);
            warmUp = Double.parseDouble(words[3]);

            if (clients < 1 || clients > CLIENTS_MAX
                || !(seconds > 0) || !(warmUp >= 0))
            {
                throw new IllegalArgumentException(line);
            }
        }

        String carryOut() throws InterruptedException {
            List<Thread> threads = new ArrayList<>();

            for (int i = 0; i < clients; i++) {
                Thread thread = new Thread(null, new Client(this, i),
                                           "client-" + i, STACK);
                thread.setDaemon(true);
                thread.start();
                threads.add(thread);
            }

            countFrom = System.nanoTime() + (long) (warmUp * SECOND_NS);
            countUntil = countFrom + (long) (seconds * SECOND_NS);
            start.countDown();

            for (Thread thread : threads) {
                long left = drainLeft() + GIVE_UP_NS;
                thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(left)));
            }

            return report();
        }

        boolean goesOn() {
            return System.nanoTime() - countUntil < 0;
        }

        long drainLeft() {
            return countUntil + DRAIN_NS - System.nanoTime();
        }

        void granted(Client client) {
            if (hot && holder.getAndSet(client) != null) {
                overlaps.incrementAndGet();
            }
        }

        void releasing() {
            if (hot) {
                holder.set(null);
            }
        }

        void released(long began, long granted) {
            long now = System.nanoTime();

            total.incrementAndGet();

            if (now - countFrom >= 0 && now - countUntil < 0) {
                cycles.add(now - began);
                acquires.add(granted - began);
            }
        }

        void wrong(Exception e) {
            if (wrong.getAndIncrement() == 0) {
                System.err.println("CuratorLoad: " + e);
            }
        }

        String report() {
            return String.format(
                Locale.ROOT, "{\"clients\":%d,\"seconds\":%s,\"cycles\":%d,"
                + "\"total\":%d,\"per_second\":%.1f,%s,%s,\"overlaps\":%d,"
                + "\"fencing_backwards\":0,\"wrong_answers\":%d,"
                + "\"unfinished\":%d}",
                clients, seconds, cycles.n, total.get(), cycles.n / seconds,
                cycles.members("cycle"), acquires.members("acquire"),
                overlaps.get(), wrong.get(), busy.get());
        }
    }

    /* A thread of a run. */
    static class Client implements Runnable {
        final Run run;
        final InterProcessMutex lock;

        Client(Run run, int number) {
            this.run = run;
            this.lock = lock(run.hot, number);
        }

        @Override
        public void run() {
            try {
                run.start.await();

                while (run.goesOn()) {
                    run.busy.incrementAndGet();

                    if (!cycle()) {
                        return;
                    }

                    run.busy.decrementAndGet();
                }

            } catch (InterruptedException e) {
                run.wrong(e);
            }
        }

        /* Returns false if it was not granted until all had to be over. */
        boolean cycle() {
            long began = System.nanoTime();

            try {
                if (!lock.acquire(run.drainLeft(), TimeUnit.NANOSECONDS)) {
                    return false;
                }

                long granted = System.nanoTime();
                run.granted(this);

                run.releasing();
                lock.release();
                run.released(began, granted);

            } catch (Exception e) {
                run.wrong(e);
            }

            return true;
        }
    }

    static final List<CuratorFramework> sessions = new ArrayList<>();
    static final Map<String, InterProcessMutex> locks = new HashMap<>();

    /* The lock of a client; clients take turns with the sessions. */
    static InterProcessMutex lock(boolean hot, int number) {
        String path = hot ? "/curator/hot" : "/curator/own-" + number;

        return locks.computeIfAbsent(
            path + " " + number,
            key -> new InterProcessMutex(sessions.get(number
                                                      % sessions.size()),
                                         path));
    }

    static void connect(String servers, int n)
        throws IOException, InterruptedException
    {
        for (int i = 0; i < n; i++) {
            CuratorFramework session = CuratorFrameworkFactory.builder()
                .connectString(servers)
                .sessionTimeoutMs(SESSION_TIMEOUT_MS)
                .connectionTimeoutMs(CONNECT_TIMEOUT_MS)
                .retryPolicy(new RetryNTimes(3, 100))
                .ensembleTracker(false)
                .build();

            session.start();
            sessions.add(session);
        }

        for (CuratorFramework session : sessions) {
            if (!session.blockUntilConnected(CONNECT_TIMEOUT_MS,
                                             TimeUnit.MILLISECONDS))
            {
                throw new IOException("no connection to " + servers);
            }
        }
    }

    static void usage() {
        System.err.println("usage: CuratorLoad -s HOST:PORT[,HOST:PORT...] "
                           + "[-n SESSIONS]");
        System.exit(2);
    }

    public static void main(String[] arguments) throws Exception {
        String servers = null;
        int n = SESSIONS;

        for (int i = 0; i + 1 < arguments.length; i += 2) {
            switch (arguments[i]) {
            case "-s":
                servers = arguments[i + 1];
                break;
            case "-n":
                n = Integer.parseInt(arguments[i + 1]);
                break;
            default:
                usage();
            }
        }

        if (servers == null || n < 1 || arguments.length % 2 != 0) {
            usage();
        }

        try {
            connect(servers, n);
            serve();

        } catch (IOException | IllegalArgumentException e) {
            System.err.println("CuratorLoad: " + e);
            System.exit(1);
        }

        for (CuratorFramework session : sessions) {
            session.close();
        }

        System.exit(0);
    }

    static void serve() throws IOException, InterruptedException {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in));

        for (String line = in.readLine(); line != null && !line.isBlank();
             line = in.readLine())
        {
            System.out.println(new Run(line).carryOut());
            System.out.flush();
        }
    }
}
