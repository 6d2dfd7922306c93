/*
 * Curator's own locks, driven by commands, a line each.
 *
 * usage: Contender SERVERS SESSION_TIMEOUT_MS
 *
 *     CLIENT acquire KIND PATH MS     CLIENT held CLAIM, or CLIENT refused
 *     CLIENT release                  CLIENT released
 *     CLIENT participants KIND PATH   CLIENT participants CLAIM...
 *
 * KIND is mutex, read or write.  Curator knows the owner of a lock by the
 * thread, so each CLIENT of any name is a separate thread.  A failure is
 * answered with CLIENT error WHAT.
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

public class Contender {

    /* A client: one lock at a time. */
    static class Client {
        final String name;
        final ExecutorService thread = Executors.newSingleThreadExecutor();
        InterProcessMutex lock;

        Client(String name) {
            this.name = name;
        }

        void carryOut(String[] words) {
            try {
                say(name + " " + answer(words));
            } catch (Exception e) {
                say(name + " error " + e);
            }
        }

        String answer(String[] words) throws Exception {
            switch (words[1]) {
            case "acquire":
                lock = lock(words[2], words[3]);
                return lock.acquire(Long.parseLong(words[4]),
                                    TimeUnit.MILLISECONDS)
                       ? "held " + claim(lock) : "refused";
            case "release":
                lock.release();
                return "released";
            case "participants":
                Collection<String> nodes = lock(words[2], words[3])
                                           .getParticipantNodes();
                return ("participants " + String.join(" ", nodes)).trim();
            default:
                throw new IllegalArgumentException(words[1]);
            }
        }
    }

    static CuratorFramework curator;

    static InterProcessMutex lock(String kind, String path) {
        if (kind.equals("mutex")) {
            return new InterProcessMutex(curator, path);
        }
        InterProcessReadWriteLock both =
            new InterProcessReadWriteLock(curator, path);
        return kind.equals("read") ? both.readLock() : both.writeLock();
    }

    /* The claim's znode, which a lock reveals only to its own class. */
    static String claim(InterProcessMutex lock) throws Exception {
        Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        path.setAccessible(true);
        return (String) path.invoke(lock);
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        curator = CuratorFrameworkFactory.newClient(
            arguments[0], Integer.parseInt(arguments[1]), 15000,
            new RetryOneTime(100));
        curator.start();
        curator.blockUntilConnected();
        say("ready "
            + curator.getZookeeperClient().getZooKeeper().getSessionId());

        Map<String, Client> clients = new HashMap<>();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            Client client = clients.computeIfAbsent(words[0], Client::new);
            client.thread.submit(() -> client.carryOut(words));
        }
        curator.close();
        System.exit(0);
    }
}
