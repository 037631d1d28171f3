import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Aeron one way over UDP: driver, sender and receiver in one process. Lines on stdin say what to do,
 * and each is answered by one JSON line on stdout.
 *
 * <p>AeronPeer CHANNEL MTU DIRECTORY; it first says that sender and receiver are connected.
 */
public final class AeronPeer {
    private static final int STREAM = 10, BATCH = 100, FRAGMENTS = 256;
    private static final int SOCKET_BYTES = 4 << 20, WINDOW_BYTES = 2 << 20, LARGEST_MTU = 61440;
    private static final long RESTING_NANOS = 2_000_000, CONNECTING_SECONDS = 30;

    /** Spins as the driver likes to while a round runs, and leaves the cores to others between. */
    private static final class Shift implements IdleStrategy {
        static volatile boolean running = true;

        @Override
        public void idle(int work) {
            if (work == 0) idle();
        }

        @Override
        public void idle() {
            if (running) Thread.yield();
            else LockSupport.parkNanos(RESTING_NANOS);
        }

        @Override
        public void reset() {}
    }

    private final Publication publication;
    private final LongAdder delivered = new LongAdder();
    private long sent;
    private UnsafeBuffer message = new UnsafeBuffer(new byte[8]);

    private AeronPeer(Publication publication, Subscription subscription) {
        this.publication = publication;
        var receiver = new Thread(() -> poll(subscription), "receiver");
        receiver.setDaemon(true);
        receiver.start();
    }

    private void poll(Subscription subscription) {
        var idle = new Shift();
        // Touched, as everywhere in the comparison: nothing but zeros was sent.
        var assembler = new FragmentAssembler((buffer, offset, length, header) -> {
            if (buffer.getByte(offset) == 0) delivered.increment();
        });
        while (true) idle.idle(subscription.poll(assembler, FRAGMENTS));
    }

    private String obey(String[] words) {
        switch (words[0]) {
            case "prepare":
                message = new UnsafeBuffer(new byte[Integer.parseInt(words[1])]);
                return String.format("{\"prepared\": %d}", message.capacity());
            case "unicast":
                return oneWay(Double.parseDouble(words[1]));
            case "total":
                return String.format("{\"sent\": %d, \"delivered\": %d}", sent, delivered.sum());
            case "rest":
                // Asked for once what was sent has arrived.
                Shift.running = false;
                return "{\"resting\": true}";
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private String oneWay(double seconds) {
        Shift.running = true;
        int size = message.capacity();
        long sentBefore = sent, before = delivered.sum(), began = System.nanoTime();
        long end = began + (long) (seconds * 1e9);
        while (System.nanoTime() < end)
            for (int i = 0; i < BATCH && offer(size, end); i++) sent++;
        long arrived = delivered.sum() - before;
        double took = (System.nanoTime() - began) / 1e9;
        return String.format(Locale.ROOT, "{\"seconds\": %.6f, \"sent\": %d, \"delivered\": %d}",
            took, sent - sentBefore, arrived);
    }

    /** Whether the message was taken before the round ended. */
    private boolean offer(int size, long end) {
        while (publication.offer(message, 0, size) < 0) {
            if (System.nanoTime() > end) return false;
            Thread.yield();
        }
        return true;
    }

    public static void main(String[] words) {
        int exit = 0;
        try {
            serve(words);
        } catch (Throwable error) {
            error.printStackTrace();
            exit = 1;
        }
        System.exit(exit);
    }

    @SuppressWarnings("try")
    private static void serve(String[] words) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        var context = new MediaDriver.Context()
            .aeronDirectoryName(words[2])
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true)
            .threadingMode(ThreadingMode.SHARED)
            .sharedIdleStrategy(new Shift())
            .mtuLength(Integer.parseInt(words[1]))
            .ipcMtuLength(LARGEST_MTU)
            .socketRcvbufLength(SOCKET_BYTES)
            .socketSndbufLength(SOCKET_BYTES)
            .initialWindowLength(WINDOW_BYTES);
        try (var driver = MediaDriver.launch(context);
            var aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(words[2]));
            var subscription = aeron.addSubscription(words[0], STREAM);
            var publication = aeron.addPublication(words[0], STREAM)) {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(CONNECTING_SECONDS);
            while (!publication.isConnected()) {
                if (System.nanoTime() > deadline) throw new IllegalStateException("no connection");
                Thread.sleep(5);
            }
            var peer = new AeronPeer(publication, subscription);
            Shift.running = false;
            out.println("{\"joined\": true}");
            out.println("{\"ready\": true}");
            var in = new BufferedReader(new InputStreamReader(System.in));
            for (String line = in.readLine(); line != null; line = in.readLine())
                out.println(peer.obey(line.trim().split(" ")));
        }
    }
}
