/*
 * The Curator clients of a run, on the same locks as the HTTP clients.
 *
 * usage: Contenders SERVERS SESSION_TIMEOUT_MS RECORD GUARD_PORT CLIENTS
 *                   WAIT_MS HOLD_MS SEED PATH...
 *
 * Each is a thread with a session of its own, which takes one of the locks with
 * an InterProcessMutex, looks for its claim behind a sync while it holds it,
 * operates the guarded resource, and releases.  What it does is written to
 * RECORD, as record.py says; System.nanoTime() is the machine's monotonic
 * clock.  Ends when its standard input does.
 */

import java.io.BufferedReader;
import java.io.FileWriter;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.lang.reflect.Method;
import java.net.Socket;
import java.util.Arrays;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public class Contenders {

    static volatile boolean stop;
    static PrintWriter record;
    static int number;

    static synchronized void write(double t, String what, String fields) {
        record.println(String.format(Locale.ROOT,
                       "{\"what\": \"%s\", \"t\": %.6f, %s}", what, t,
                       fields));
        record.flush();
    }

    static double now() {
        return System.nanoTime() / 1e9;
    }

    static synchronized String id() {
        return "curator." + ++number;
    }

    static class Client extends Thread {
        final String name;
        final Random random;
        final CuratorFramework curator;
        final String[] paths;
        final int wait, hold;
        final PrintWriter out;
        final BufferedReader in;
        String lock;
        long fencing;

        Client(String[] words, int index) throws Exception {
            name = "curator" + index;
            random = new Random(Long.parseLong(words[7]) * 100 + index);
            curator = CuratorFrameworkFactory.newClient(words[0],
                Integer.parseInt(words[1]), 3000, new RetryOneTime(100));
            Socket guard = new Socket("127.0.0.1",
                                      Integer.parseInt(words[3]));
            out = new PrintWriter(guard.getOutputStream(), true);
            in = new BufferedReader(
                new InputStreamReader(guard.getInputStream()));
            wait = Integer.parseInt(words[5]);
            hold = Integer.parseInt(words[6]);
            paths = Arrays.copyOfRange(words, 8, words.length);
            curator.start();
        }

        public void run() {
            while (!stop) {
                try {
                    turn();
                    Thread.sleep(random.nextInt(200));
                } catch (Exception e) {
                    System.err.println(name + " " + e);
                }
            }
            curator.close();
        }

        String ask(String kind, String more) {
            String id = id();
            write(now(), "ask", String.format(Locale.ROOT,
                "\"id\": \"%s\", \"who\": \"%s\", \"kind\": \"%s\", "
                + "\"lock\": \"%s\", \"mode\": \"exclusive\"%s", id, name, kind,
                lock, more));
            return id;
        }

        void told(String id, String status, String more) {
            write(now(), "told", String.format(
                "\"id\": \"%s\", \"status\": %s%s", id, status, more));
        }

        String about(String claim) {
            return ", \"claim\": \"" + claim + "\"";
        }

        void turn() throws Exception {
            String path = paths[random.nextInt(paths.length)];
            lock = path.substring(path.lastIndexOf('/') + 1);
            InterProcessMutex mutex = new InterProcessMutex(curator, path);
            String claim = acquire(mutex);
            if (claim == null) {
                return;
            }
            double end = now() + random.nextInt(hold) / 1e3;
            try {
                while (look(claim) && now() < end) {
                    Thread.sleep(random.nextInt(300));
                }
            } finally {
                release(mutex, claim);
            }
        }

        String acquire(InterProcessMutex mutex) throws Exception {
            int ms = 100 + random.nextInt(wait);
            String id = ask("acquire", ", \"wait\": " + ms / 1e3);
            String claim = null, status = "\"error\"", more = "";
            boolean got = false;
            try {
                got = mutex.acquire(ms, TimeUnit.MILLISECONDS);
                status = "423";
                if (got) {
                    claim = claim(mutex);
                    fencing = curator.checkExists().forPath(claim).getCzxid()
                              * 256;
                    status = "201";
                    more = about(claim) + ", \"fencing\": " + fencing;
                }
            } catch (Exception e) {
                status = "\"error\"";
            }
            told(id, status, more);
            if (got && !status.equals("201")) {
                mutex.release();
            }
            return status.equals("201") ? claim : null;
        }

        boolean look(String claim) throws Exception {
            String id = ask("look", about(claim));
            String status = "\"error\"";
            try {
                ZooKeeper zk = curator.getZookeeperClient().getZooKeeper();
                CountDownLatch done = new CountDownLatch(1);
                int[] code = new int[1];
                zk.sync(claim, (rc, p, context) -> {
                    code[0] = rc;
                    done.countDown();
                }, null);
                done.await();
                if (code[0] == 0) {
                    Stat stat = zk.exists(claim, false);
                    status = stat != null ? "200" : "410";
                }
            } catch (Exception e) {
                status = "\"error\"";
            }
            told(id, status, "");
            if (status.equals("200")) {
                operate(claim);
            }
            return status.equals("200");
        }

        void operate(String claim) throws Exception {
            double asked = now();
            out.println(lock + " " + fencing);
            boolean ok = in.readLine().equals("ok");
            write(now(), "op", String.format(Locale.ROOT,
                "\"who\": \"%s\", \"lock\": \"%s\", \"claim\": \"%s\", "
                + "\"fencing\": %d, \"asked\": %.6f, \"ok\": %b", name, lock,
                claim, fencing, asked, ok));
        }

        void release(InterProcessMutex mutex, String claim) throws Exception {
            String id = ask("release", about(claim));
            String status = "\"error\"";
            try {
                mutex.release();
                status = "204";
            } finally {
                told(id, status, "");
            }
        }
    }

    /* The claim's znode, of which a lock tells nobody but its own kind. */
    static String claim(InterProcessMutex lock) throws Exception {
        Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        path.setAccessible(true);
        return (String) path.invoke(lock);
    }

    public static void main(String[] words) throws Exception {
        record = new PrintWriter(new FileWriter(words[2], true));
        Client[] clients = new Client[Integer.parseInt(words[4])];
        for (int i = 0; i < clients.length; i++) {
            clients[i] = new Client(words, i);
            clients[i].start();
        }
        while (System.in.read() != -1) {
            /* until there is no more */
        }
        stop = true;
        for (Client client : clients) {
            client.join();
        }
        System.exit(0);
    }
}
