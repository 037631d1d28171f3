package stormcast;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.jgroups.Address;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import stormcast.Trace.Event;

/** What this member sends, numbered from 1 for each destination, and written down around each send. */
final class Outbox {
    private final Trace trace;
    private final JChannel channel;
    private final Names names;
    private final long seed;
    private final Map<Integer, Stream> streams = new ConcurrentHashMap<>();

    /** The messages to one destination. */
    private final class Stream {
        final int dest;
        final Payloads payloads;
        volatile long accepted;
        /** Bytes of a message that the channel has not taken yet; it holds its sender up instead. */
        volatile int waiting;
        private long numbered;

        Stream(int dest) {
            this.dest = dest;
            payloads = new Payloads(seed, names.me(), dest);
        }

        synchronized void send(Address to, int least, int most, boolean isEarly) throws Exception {
            long number = ++numbered;
            byte[] body = payloads.make(number - 1, least, most);
            int protocol = to == null ? Trace.NAKACK2 : Trace.UNICAST3;
            Message message = new BytesMessage(to, body);
            if (isEarly) message.setFlag(Message.Flag.OOB);
            // Before it can be at anybody: this process may be killed the next moment.
            synchronized (trace) {
                trace.write(new Event(Trace.SENT).protocol(protocol).peer(dest).conn(to == null ? 0 : 1)
                    .view(names.view()).flags(isEarly ? Trace.OOB : 0).message(number).body(body)
                    .trim((int) number));
            }
            waiting = body.length;
            try {
                channel.send(message);
            } catch (Exception error) {
                trace.write(new Event(Trace.ABANDONED).protocol(protocol).peer(dest)
                    .conn(to == null ? 0 : 1).message(number).text(String.valueOf(error.getMessage())));
                throw error;
            } finally {
                waiting = 0;
            }
            accepted++;
            trace.write(new Event(Trace.OFFERED).peer(dest).message(number));
        }
    }

    Outbox(Trace trace, JChannel channel, Names names, long seed) {
        this.trace = trace;
        this.channel = channel;
        this.names = names;
        this.seed = seed;
    }

    /** Send the next message to a member, or to the group (null); waits while the channel does. */
    void send(Address to, int least, int most, boolean isEarly) throws Exception {
        stream(to).send(to, least, most, isEarly);
    }

    long accepted(Address to) {
        return stream(to).accepted;
    }

    private Stream stream(Address to) {
        return streams.computeIfAbsent(to == null ? 0 : Names.shortOf(to), Stream::new);
    }

    /** Messages accepted, by destination. */
    Map<String, Object> accepted() {
        Map<String, Object> found = new TreeMap<>();
        streams.values().forEach(each -> found.put(Integer.toHexString(each.dest), each.accepted));
        return found;
    }

    /** Destinations for which a message waits. */
    Map<String, Object> waiting() {
        Map<String, Object> found = new TreeMap<>();
        for (Stream each : streams.values())
            if (each.waiting > 0) found.put(Integer.toHexString(each.dest), 1);
        return found;
    }

    /** Write how much waits. */
    void gauge() {
        for (Stream each : streams.values())
            trace.write(new Event(Trace.GAUGE).stream(Trace.OUTBOX_BYTES).peer(each.dest).lo(each.waiting));
    }
}
