package stormcast;

import com.dynatrace.hash4j.hashing.Hashing;
import com.dynatrace.hash4j.hashing.Hasher64;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;

/**
 * Writes docs/trace-format.md, version 3: a journal of one incarnation. Each call of {@link #write}
 * is a block, and is with the kernel when it returns, so that it outlives the process.
 */
final class Trace {
    static final int START = 1, SENT = 2, DELIVERED = 3, VIEW = 10, CONN = 11, GAUGE = 14, STOP = 20;
    static final int OFFERED = 24, HANDED = 25, ABANDONED = 26;
    /** The `stream` of some events. */
    static final int RECEIVER_OPEN = 5, RECEIVER_REMOVED = 7, MERGE = 1, OUTBOX_BYTES = 5;
    /** Numbers of protocols, and the flag of a message that may come early, as on Stormcast's wire. */
    static final int UNICAST3 = 3, NAKACK2 = 5, OOB = 1;

    static final Hasher64 XXH3 = Hashing.xxh3_64();

    private static final int HEADER = 48, RECORD = 72, SEGMENT = 4 << 20;
    /** The exit code of a member that failed. */
    static final int FAILED = 3;
    /** A run whose traces are larger is not one that anybody judges: the member ends aloud. */
    private static final long LIMIT = 1L << 30;

    private final int member;
    private final long wallNanos;
    private final Path folder;
    private FileChannel segment;
    private int segments;
    private long position, written, events;
    private boolean isClosed;

    Trace(Path journals, String name, int member, long wallNanos) throws IOException {
        this.member = member;
        this.wallNanos = wallNanos;
        folder = journals.resolve(String.format("%s-%08x", name, member));
        Files.createDirectories(folder);
        begin();
    }

    /** One event; what is not set is 0. */
    static final class Event {
        private final int kind;
        private int flags, protocol, stream, peer, conn, epoch, view, count, trim;
        private long lo, hi, bytes, digest;
        private String text = "";

        Event(int kind) {
            this.kind = kind;
        }

        Event flags(int value) {
            flags = value;
            return this;
        }

        Event protocol(int value) {
            protocol = value;
            return this;
        }

        Event stream(int value) {
            stream = value;
            return this;
        }

        Event peer(int value) {
            peer = value;
            return this;
        }

        Event conn(int value) {
            conn = value;
            return this;
        }

        Event epoch(int value) {
            epoch = value;
            return this;
        }

        Event view(int value) {
            view = value;
            return this;
        }

        Event count(int value) {
            count = value;
            return this;
        }

        /** One message, and its number. */
        Event message(long number) {
            count = 1;
            return lo(number).hi(number);
        }

        Event lo(long value) {
            lo = value;
            return this;
        }

        Event hi(long value) {
            hi = value;
            return this;
        }

        Event body(byte[] body) {
            bytes = body.length;
            digest = XXH3.hashBytesToLong(body);
            return this;
        }

        Event trim(int value) {
            trim = value;
            return this;
        }

        Event text(String value) {
            text = value;
            return this;
        }

        private void pack(ByteBuffer to, int textNumber, double time) {
            to.put((byte) kind).put((byte) flags).put((byte) protocol).put((byte) stream);
            to.putInt(peer).putInt(conn).putInt(epoch).putInt(view).putInt(count);
            to.putLong(lo).putLong(hi).putLong(bytes).putLong(digest);
            to.putInt(trim).putInt(textNumber).putDouble(time);
        }
    }

    /** The clock that all processes of this machine share. */
    static double now() {
        return System.nanoTime() / 1e9;
    }

    /** Write events that happen now as one block; nothing after {@link #stop}. */
    synchronized void write(Event... happened) {
        if (isClosed) return;
        var heap = new ByteArrayOutputStream();
        List<Integer> numbers = new ArrayList<>();
        int texts = 0;
        for (Event event : happened) {
            numbers.add(event.text.isEmpty() ? 0 : ++texts);
            if (!event.text.isEmpty()) putText(heap, event.text);
        }
        double now = now();
        var block = ByteBuffer.allocate(HEADER + RECORD * happened.length + heap.size());
        block.order(ByteOrder.LITTLE_ENDIAN);
        block.put("STRC".getBytes(StandardCharsets.US_ASCII)).putShort((short) 3).putShort((short) HEADER);
        block.putInt(member).putInt(happened.length).putLong(events).putLong(wallNanos);
        block.putInt(heap.size()).putInt(0).putLong(0);
        for (int i = 0; i < happened.length; i++) happened[i].pack(block, numbers.get(i), now);
        block.put(heap.toByteArray());
        block.putLong(HEADER - 8, check(block.array()));
        try {
            append(block.flip());
        } catch (IOException error) {
            // JGroups would go on without what is not written: nobody is to take that for the whole.
            System.err.println("the journal cannot be written: " + error.getMessage());
            Runtime.getRuntime().halt(FAILED);
        }
        events += happened.length;
    }

    /** The check is over all of the block but itself. */
    private static long check(byte[] block) {
        byte[] rest = new byte[block.length - 8];
        System.arraycopy(block, 0, rest, 0, HEADER - 8);
        System.arraycopy(block, HEADER, rest, HEADER - 8, block.length - HEADER);
        return XXH3.hashBytesToLong(rest);
    }

    private static void putText(ByteArrayOutputStream heap, String text) {
        byte[] data = text.getBytes(StandardCharsets.UTF_8);
        int size = Math.min(data.length, 0xFFFF);
        heap.write(size);
        heap.write(size >> 8);
        heap.write(data, 0, size);
    }

    private void append(ByteBuffer block) throws IOException {
        if (written + block.remaining() > LIMIT) throw new IOException("it has 1 GiB: play a shorter run");
        if (position > 0 && position + block.remaining() > SEGMENT) begin();
        position += block.remaining();
        written += block.remaining();
        while (block.hasRemaining()) segment.write(block);
    }

    private void begin() throws IOException {
        if (segment != null) segment.close();
        Path path = folder.resolve(String.format("%06d.trace", segments++));
        segment = FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
        position = 0;
    }

    /** Write that the member has left; nothing follows. */
    synchronized void stop() {
        write(new Event(STOP));
        isClosed = true;
    }

    Path folder() {
        return folder;
    }
}
