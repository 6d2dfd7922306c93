import static java.lang.System.nanoTime;
import static java.nio.charset.StandardCharsets.UTF_8;
import java.net.*;
import java.net.http.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Consumer;
import java.util.regex.Pattern;

/**
 * A lock of the lock gateway, for JDK 17 and later, without dependencies.
 * <pre>
 * var locks = new ZkLock.Client("http://127.0.0.1:8080/locks", Map.of());
 * try (ZkLock held = locks.lock("nightly", new ZkLock.Options())) {
 *     write(record, held.fencingToken);   // the resource refuses smaller ones
 *     held.check();                       // throws Lost if the lock is lost
 * }
 * </pre>
 * A thread renews the lease.  close() throws Lost if the lock was lost before.
 * The lease counts from before the last confirmed request was sent, so this
 * client tells of a loss no later than the gateway does.
 */
@SuppressWarnings("serial")
public final class ZkLock implements AutoCloseable {
    public static class Failure extends RuntimeException {
        private Failure(String how) { super(how); }
    }
    /** The wait is over, and another claim has the lock. */
    public static final class Taken extends Failure {
        private Taken(String how) { super(how); }
    }
    /** The wait is over, and a claim that may be held is gone after its ttl. */
    public static final class Unreachable extends Failure {
        private Unreachable(String how) { super(how); }
    }
    /** The gateway refuses the call, and the message says why. */
    public static final class Refused extends Failure {
        private Refused(String how) { super(how); }
    }
    /** The lock was held, and is not sure to be held any more. */
    public static final class Lost extends Failure {
        private Lost(String how) { super(how); }
    }
    public static final class Options {
        public Duration wait = Duration.ofSeconds(30), ttl = wait;
        public String mode = "exclusive";   // shared, write, semaphore, member
        public Integer permits;             // of a semaphore
        public String owner;                // what other clients see
        public boolean durable = true;      // else SESSION bounds the lease
        public Consumer<ZkLock> onLost = held -> { };   // by a thread

        private String query(long wait) {
            return "?ttl=" + ttl.toMillis() + "ms&mode=" + encode(mode)
                + (wait < 0 ? "" : "&wait=" + wait / MS + "ms")
                + (wait < 0 || !durable ? "" : "&durable=1")
                + (owner == null ? "" : "&owner=" + encode(owner))
                + (permits == null ? "" : "&permits=" + permits);
        }
    }
    private static final long MS = 1_000_000, SECOND = 1000 * MS;   // in ns
    private static final long CONNECT = 5 * SECOND;     // and for a release
    private static final long PATIENCE = 10 * SECOND;   // or for all repeats
    private static final long SESSION = 10 * SECOND;    // of the gateway

    /** At a URL, or if null at $ZK_LOCK_URL or $LOCKS, with these headers. */
    public static final class Client {
        private final String url;
        private final Map<String, String> headers;
        private final HttpClient http = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)   // 2 bounds a connection
            .connectTimeout(Duration.ofNanos(CONNECT)).build();

        public Client(String url, Map<String, String> headers) {
            var env = System.getenv();
            this.url = (Objects.toString(url, "") + " " + env.getOrDefault(
                "ZK_LOCK_URL", "") + " " + env.getOrDefault("LOCKS", "")
                + " http://127.0.0.1:8080/locks").trim().split("/* ")[0];
            this.headers = Map.copyOf(headers);
        }
        /** All requests have one key, so a repeat makes no second claim.  An
         *  interrupt takes the claim back, for some seconds at most. */
        public ZkLock lock(String name, Options options)
                throws InterruptedException {
            if (name.matches("|[.]{1,2}")) {
                throw new Refused("no name of a lock: " + name);
            }
            String key = UUID.randomUUID().toString();
            try {
                for (long end = nanoTime() + options.wait.toNanos();;) {
                    var held = new ZkLock(this, name, options, key,
                                          Math.max(0, end - nanoTime()));
                    if (held.start()) {
                        return held;
                    }
                    Answer answer = held.answer;
                    var refused = held.token.isEmpty() && !answer.mayChange();
                    if (end - nanoTime() <= answer.pause() || refused && (
                            answer.status != 409 || options.permits == null)) {
                        held.release();
                        throw refused ? new Refused(answer.detail())
                            : answer.status == 423 || answer.status == 429
                            ? new Taken(answer.detail())
                            : new Unreachable(answer.detail());
                    }
                    Thread.sleep(answer.pause() / MS);
                }
            } catch (InterruptedException e) {
                new ZkLock(this, name, options, key, -1).release();
                throw e;
            }
        }
    }

    /** An answer; of status 0 without a whole answer. */
    private record Answer(int status, HttpHeaders headers, String body) {
        String header(String name) {
            return headers.firstValue(name).orElse("");
        }

        boolean mayChange() {       // by a repeat; 409: see lock()
            return Set.of(0, 423, 429).contains(status) || status >= 500;
        }

        long pause() {
            String s = header("Retry-After");
            return s.matches("\\d{1,9}") ? Long.parseLong(s) * SECOND : SECOND;
        }

        String detail() {
            return status == 0 ? body : member("detail", "status " + status);
        }
        /** A text or a number; escapes of control characters stay. */
        String member(String name, String otherwise) {
            var found = Pattern.compile("\"" + name
                + "\":\"?((?<=\")(?:[^\"\\\\]|\\\\.)*|\\d+)").matcher(body);
            return found.find() ? found.group(1).replaceAll("\\\\(.)", "$1")
                : otherwise;
        }
    }

    public final String name, token, owner;
    public final long fencingToken;
    public final Duration ttl;      // as granted
    public final Options options;
    private final Client client;
    private final long lease;
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile long sent;     // when the last confirmed request was
    private volatile Lost lost;
    private volatile Answer answer; // to the last request but releases

    /** Asks for a token; with a wait below 0 a claim that waits has one. */
    private ZkLock(Client client, String name, Options options, String key,
                   long wait) throws InterruptedException {
        this.client = client;
        this.name = name;
        this.options = options;
        sent = nanoTime();
        answer = call("POST", options.query(wait), wait < 0
            ? Map.of("Idempotency-Key", key, "Prefer", "respond-async")
            : Map.of("Idempotency-Key", key), wait + PATIENCE);
        token = answer.header("Lock-Token");
        owner = answer.member("owner", null);
        fencingToken = Long.parseLong(answer.member("fencing_token", "0"));
        ttl = Duration.ofMillis(Long.parseLong(answer.member("ttl_ms", "0")));
        lease = options.durable ? ttl.toNanos()
            : Math.min(ttl.toNanos(), SESSION);
    }

    private Answer call(String method, String query, Map<String, String> fields,
                        long timeout) throws InterruptedException {
        var url = client.url + "/" + encode(name.replace("/", "%2F")) + query;
        var request = HttpRequest.newBuilder(URI.create(url))
            .method(method, HttpRequest.BodyPublishers.noBody());
        client.headers.forEach(request::header);
        fields.forEach(request::header);
        var asked = client.http.sendAsync(request.build(),
                                          HttpResponse.BodyHandlers.ofString());
        try {
            var got = asked.get(timeout, TimeUnit.NANOSECONDS);
            return new Answer(got.statusCode(), got.headers(), got.body());
        } catch (ExecutionException | TimeoutException e) {
            return new Answer(0, HttpHeaders.of(Map.of(), (a, b) -> true),
                              "no answer: " + e);
        } finally {
            asked.cancel(true);
        }
    }

    private long left() {
        return ended.getCount() == 0 ? 0 : sent + lease - nanoTime();
    }

    public boolean isHeld() {
        if (left() <= 0) {
            lose("the lease is over by the client's clock");
        }
        return left() > 0;
    }

    /** Throws Lost unless the lock is held. */
    public void check() {
        if (!isHeld()) {
            throw lost != null ? lost : new Lost("the lock was released");
        }
    }

    @Override
    public void close() {
        try {
            isHeld();               // onLost may throw
        } finally {
            release();
        }
        if (lost != null) {
            throw lost;
        }
    }

    /** Whether the gateway has confirmed that this call freed the lock.  An
     *  unconfirmed release is no error: the lease ends by itself. */
    public boolean release() {
        ended.countDown();
        boolean interrupted = Thread.interrupted();
        boolean again = !token.isEmpty(), freed = false;
        for (long end = nanoTime() + PATIENCE; again && nanoTime() < end;) {
            try {
                Answer told = call("DELETE", "", Map.of("Lock-Token", token),
                                   CONNECT);
                freed = told.status == 204;
                again = told.mayChange();
                Thread.sleep(again ? told.pause() / MS : 0);
            } catch (InterruptedException e) {
                interrupted = true; // the lock has to be released first
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        return freed;
    }

    /** Whether the lease counts.  If it may have begun before, renew first. */
    private boolean start() throws InterruptedException {
        boolean counts = answer.status == 201 && nanoTime() - sent < lease / 3;
        if (!counts && !token.isEmpty()) {
            sent = nanoTime();
            renew(lease / 3);
            counts = answer.status == 200 && left() > 0;
        }
        if (counts) {
            Thread thread = new Thread(this::keep, "lock " + name);
            thread.setDaemon(true);
            thread.start();
        }
        return counts;
    }

    /** Renews at a third of the lease, and sooner after a failure. */
    private void keep() {
        long third = lease / 3, pause = sent + third - nanoTime();
        try {
            while (isHeld() && !ended.await(Math.min(pause, left()),
                                            TimeUnit.NANOSECONDS)) {
                renew(Math.min(third, left()));
                pause = answer.status == 200 ? sent + third - nanoTime()
                    : Math.min(answer.pause(), third);
                if (answer.status == 404 || answer.status == 410) {
                    lose(answer.detail());
                }
            }
        } catch (InterruptedException e) {
            // no code has this thread
        }
    }

    /** With a 200 the lease counts from now; a lease that is over does not. */
    private void renew(long timeout) throws InterruptedException {
        long before = nanoTime();
        answer = call("PUT", "", Map.of("Lock-Token", token), timeout);
        sent = answer.status == 200 && left() > 0 ? before : sent;
    }

    private void lose(String how) {
        synchronized (this) {
            if (ended.getCount() == 0) {
                return;
            }
            lost = new Lost(how);
            ended.countDown();
        }
        options.onLost.accept(this);
    }

    private static String encode(String text) {
        return URLEncoder.encode(text, UTF_8).replace("+", "%20");
    }
}
