import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicInteger;

/** A program that uses clients/java; test_clients.py says what it does. */
public final class Driver {

    /** How long each round of a loop works; null: no loop. */
    static Duration work;

    static Duration seconds(String text) {
        return Duration.ofMillis((long) (1000 * Double.parseDouble(text)));
    }

    static ZkLock.Options options(String[] words, Map<String, String> headers) {
        var options = new ZkLock.Options();
        options.onLost = held -> System.out.println("lost");
        for (String word : words) {
            String value = word.substring(word.indexOf('=') + 1);
            switch (word.substring(0, word.indexOf('='))) {
                case "wait" -> options.wait = seconds(value);
                case "ttl" -> options.ttl = seconds(value);
                case "mode" -> options.mode = value;
                case "permits" -> options.permits = Integer.valueOf(value);
                case "owner" -> options.owner = value;
                case "durable" -> options.durable = value.equals("1");
                case "loop" -> work = seconds(value);
                case "auth" -> headers.put("Authorization", value);
                case "raises" -> options.onLost = held -> {
                    throw new IllegalStateException("raised");
                };
                default -> throw new IllegalArgumentException(word);
            }
        }
        return options;
    }

    /** The lease ends, and no thread of the client is there to notice. */
    static void outlive(ZkLock held) throws InterruptedException {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().equals("lock " + held.name)) {
                thread.interrupt();
                thread.join();
            }
        }
        Thread.sleep(held.ttl.toMillis());
    }

    static void use(ZkLock held) throws InterruptedException {
        System.out.println("held " + held.token + " " + held.fencingToken
            + " " + held.owner + " " + held.options.mode);
        var in = new Scanner(System.in);
        while (in.hasNextLine()) {
            switch (in.nextLine()) {
                case "raise" -> throw new IllegalStateException("raised");
                case "release" -> { return; }
                case "early" -> {
                    held.release();
                    return;
                }
                case "late" -> {
                    outlive(held);
                    return;
                }
                default -> System.out.println(held.isHeld() ? "yes" : "no");
            }
        }
    }

    static void rounds(ZkLock.Client locks, String name, ZkLock.Options options)
            throws Exception {
        while (System.in.available() == 0) {
            try (ZkLock held = locks.lock(name, options)) {
                System.out.println("in " + held.owner + " "
                    + held.fencingToken);
                Thread.sleep(work.toMillis());
                held.check();
                System.out.println("out " + held.owner + " "
                    + held.fencingToken);
            }
        }
    }

    static Thread waiter(ZkLock.Client locks, String name, String[] words,
                         AtomicInteger granted) {
        var options = options(words, new HashMap<>());
        options.wait = Duration.ofMinutes(2);
        var thread = new Thread(() -> {
            try (ZkLock held = locks.lock(name, options)) {
                granted.incrementAndGet();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        thread.start();
        return thread;
    }

    public static void main(String[] args) throws Exception {
        var thread = Thread.currentThread();
        sun.misc.Signal.handle(new sun.misc.Signal("INT"),
                               signal -> thread.interrupt());
        int number = Integer.parseInt(args[2]);
        var words = List.of(args).subList(3, args.length)
            .toArray(new String[0]);
        var headers = new HashMap<String, String>();
        var options = options(words, headers);
        var locks = new ZkLock.Client(args[0], headers);
        var granted = new AtomicInteger();
        var threads = new ArrayList<Thread>();
        try {
            if (work != null) {
                rounds(locks, args[1], options);
                System.out.println("end released");
                return;
            }
            try (ZkLock held = locks.lock(args[1], options)) {
                for (int i = 0; i < number; i++) {
                    threads.add(waiter(locks, args[1], words, granted));
                }
                use(held);
            }
            for (Thread waiter : threads) {
                waiter.join();
            }
            if (number > 0) {
                System.out.println("granted " + granted.get());
            }
            System.out.println("end released");
        } catch (ZkLock.Failure e) {
            System.out.println("end " + e.getClass().getSimpleName()
                .toLowerCase() + " " + e.getMessage());
        } catch (InterruptedException e) {
            System.out.println("end cancelled");
        } catch (IllegalStateException e) {
            System.out.println("end " + e.getMessage());
        }
    }
}
