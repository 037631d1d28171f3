package stormcast;

import com.dynatrace.hash4j.hashing.Hasher64;
import com.dynatrace.hash4j.hashing.Hashing;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * The messages of one incarnation to one destination: the n-th, from 0, is its number and then a
 * fingerprint of that, repeated to its size. So whoever receives one knows which it is.
 */
final class Payloads {
    /** Shorter ones do not carry enough to be known. */
    static final int LEAST = 16;

    private static final int NUMBER = 8;

    private final Hasher64 marks;

    /** Of the member `source` to `dest`, by short id; 0 is the group. */
    Payloads(long seed, int source, int dest) {
        String whose = seed + "/" + Integer.toHexString(source) + "/" + Integer.toHexString(dest);
        marks = Hashing.xxh3_64(Trace.XXH3.hashBytesToLong(whose.getBytes(StandardCharsets.UTF_8)));
    }

    byte[] make(long index, int least, int most) {
        byte[] number = ByteBuffer.allocate(NUMBER).putLong(index).array();
        long mark = marks.hashBytesToLong(number);
        int size = least + (int) ((mark >>> 32) % (most - least + 1L));
        return Arrays.copyOf(filled(number, mark, size), size);
    }

    /** The index of a message; -1 if it is none of these. */
    long indexOf(byte[] message) {
        if (message.length < LEAST) return -1;
        byte[] number = Arrays.copyOf(message, NUMBER);
        byte[] wanted = filled(number, marks.hashBytesToLong(number), message.length);
        long index = ByteBuffer.wrap(number).getLong();
        boolean isOurs = Arrays.equals(wanted, 0, message.length, message, 0, message.length);
        return isOurs && index >= 0 ? index : -1;
    }

    private static byte[] filled(byte[] number, long mark, int size) {
        var whole = ByteBuffer.allocate(NUMBER + (size / 8 + 1) * 8).put(number);
        while (whole.remaining() >= 8) whole.putLong(mark);
        return whole.array();
    }
}
