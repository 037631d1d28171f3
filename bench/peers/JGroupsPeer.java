import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.jgroups.Address;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.util.MessageBatch;
import org.jgroups.util.NameCache;

/**
 * One JGroups member that is measured. Lines on stdin say what to do, and each is answered by one
 * JSON line on stdout, so that rounds of several programs can take turns while this one stays warm.
 *
 * <p>JGroupsPeer CONFIG CLUSTER NAME MEMBERS THREADS; it first says that it joined, then that the
 * view is full.
 */
public final class JGroupsPeer implements Receiver {
    /** The first byte of a message: what it is. */
    private static final byte LOAD = 0, REQUEST = 1, REPLY = 2;

    private static final long FORMING_SECONDS = 60, REPLY_SECONDS = 30;

    private final JChannel channel;
    private final int threads;
    private final LongAdder delivered = new LongAdder(), sent = new LongAdder();
    private final Semaphore replied = new Semaphore(0);
    private int size = 8;
    private volatile boolean running;
    /** The number of the request that is out; an answer to an older one came too late. */
    private volatile long asked;

    private JGroupsPeer(String config, String cluster, String name, int threads) throws Exception {
        this.threads = threads;
        channel = new JChannel(config).name(name).setReceiver(this);
        channel.connect(cluster);
    }

    // Deliveries: each message is touched, as the members on the other side of the comparison do.

    @Override
    public void receive(MessageBatch batch) {
        long loads = 0;
        for (Message message : batch) {
            if (message.getArray()[message.getOffset()] == LOAD) loads++;
            else answer(message);
        }
        delivered.add(loads);
    }

    @Override
    public void receive(Message message) {
        if (message.getArray()[message.getOffset()] == LOAD) delivered.increment();
        else answer(message);
    }

    private void answer(Message message) {
        byte[] data = message.getArray();
        int at = message.getOffset();
        if (data[at] == REPLY) {
            if (data[at + 1] == (byte) asked) replied.release();
            return;
        }
        byte[] reply = Arrays.copyOfRange(data, at, at + message.getLength());
        reply[0] = REPLY;
        send(message.getSrc(), reply);
    }

    private void send(Address dest, byte[] payload) {
        try {
            channel.send(new BytesMessage(dest, payload));
        } catch (Exception error) {
            throw new IllegalStateException("a message was not accepted", error);
        }
    }

    // Commands.

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "prepare":
                size = Integer.parseInt(words[1]);
                return String.format("{\"prepared\": %d}", size);
            case "multicast":
                return load(seconds(words), null);
            case "unicast":
                return load(seconds(words), member(words[2]));
            case "listen":
                return listen(seconds(words), 0);
            case "roundtrip":
                return roundTrips(seconds(words), member(words[2]));
            case "total":
                return String.format("{\"sent\": %d, \"delivered\": %d}", sent.sum(), delivered.sum());
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private static double seconds(String[] words) {
        return Double.parseDouble(words[1]);
    }

    private Address member(String name) {
        return channel.getView().getMembers().stream()
            .filter(each -> name.equals(NameCache.get(each)))
            .findFirst()
            .orElseThrow(() -> new IllegalArgumentException("no member " + name));
    }

    /** Everyone on `threads` threads sends as fast as the channel takes messages. */
    private String load(double seconds, Address dest) throws Exception {
        long before = sent.sum();
        running = true;
        Thread[] senders = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            senders[i] = new Thread(() -> {
                byte[] payload = new byte[size];
                while (running) {
                    send(dest, payload);
                    sent.increment();
                }
            });
            senders[i].start();
        }
        String figures = listen(seconds, before);
        running = false;
        for (Thread sender : senders) sender.join();
        return figures;
    }

    /** What arrives within `seconds` from now. */
    private String listen(double seconds, long sentBefore) throws Exception {
        long before = delivered.sum(), began = System.nanoTime();
        TimeUnit.NANOSECONDS.sleep((long) (seconds * 1e9));
        long arrived = delivered.sum() - before;
        double took = (System.nanoTime() - began) / 1e9;
        return String.format(Locale.ROOT, "{\"seconds\": %.6f, \"sent\": %d, \"delivered\": %d}",
            took, sent.sum() - sentBefore, arrived);
    }

    /** One request at a time; the next leaves when the answer is there. */
    private String roundTrips(double seconds, Address dest) throws Exception {
        long[] took = new long[1 << 16];
        int count = 0;
        long began = System.nanoTime(), end = began + (long) (seconds * 1e9);
        replied.drainPermits();
        while (System.nanoTime() < end) {
            byte[] request = new byte[Math.max(size, 2)];
            request[0] = REQUEST;
            request[1] = (byte) ++asked;
            long start = System.nanoTime();
            send(dest, request);
            if (!replied.tryAcquire(REPLY_SECONDS, TimeUnit.SECONDS))
                return String.format("{\"error\": \"request %d was never answered\"}", asked);
            long now = System.nanoTime();
            // An answer after the end does not count: under loss the last one may take seconds.
            if (now > end) break;
            if (count == took.length) took = Arrays.copyOf(took, 2 * count);
            took[count++] = now - start;
        }
        Arrays.sort(took, 0, count);
        return String.format(Locale.ROOT,
            "{\"seconds\": %.6f, \"count\": %d, \"p50_us\": %s, \"p99_us\": %s, \"p99_9_us\": %s}",
            seconds, count, at(took, count, 0.5), at(took, count, 0.99), at(took, count, 0.999));
    }

    /** The value that a share of the sorted ones lies below, in microseconds. */
    private static String at(long[] sorted, int count, double share) {
        if (count == 0) return "null";
        return String.format(Locale.ROOT, "%.1f", sorted[Math.min(count - 1, (int) (count * share))] / 1e3);
    }

    public static void main(String[] words) {
        int exit = 0;
        try {
            serve(words);
        } catch (Throwable error) {
            error.printStackTrace();
            exit = 1;
        }
        // Without a goodbye: what that takes is not measured, and may take long under loss.
        Runtime.getRuntime().halt(exit);
    }

    private static void serve(String[] words) throws Exception {
        // The library prints to stdout; here that is for answers only.
        PrintStream out = System.out;
        System.setOut(System.err);
        var peer = new JGroupsPeer(words[0], words[1], words[2], Integer.parseInt(words[4]));
        out.println("{\"joined\": true}");
        int members = Integer.parseInt(words[3]);
        long deadline = System.nanoTime() + FORMING_SECONDS * 1_000_000_000L;
        while (peer.channel.getView().size() < members) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("the group did not form");
            Thread.sleep(20);
        }
        out.println("{\"ready\": true}");
        var in = new BufferedReader(new InputStreamReader(System.in));
        // The end of stdin is the end of whoever asks: nobody is left to measure for.
        for (String line = in.readLine(); line != null; line = in.readLine())
            out.println(peer.obey(line.trim().split(" ")));
    }
}
