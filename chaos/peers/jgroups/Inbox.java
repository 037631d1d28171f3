package stormcast;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Collectors;
import org.jgroups.Address;
import org.jgroups.MergeView;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;
import stormcast.Trace.Event;

/**
 * The application: it writes down what the channel hands to it, messages and views, as it comes.
 *
 * <p>JGroups tells an application no numbers. Each message says its own, within its sender's
 * messages to this destination; one that is not what any sender made is counted where the next one
 * was expected, with the bytes that came.
 */
final class Inbox implements Receiver {
    private final Trace trace;
    private final Names names;
    private final long seed;
    private final Flaw flaw;
    private final Map<Integer, Window> windows = new HashMap<>();
    /** The highest number that came in order: of unicasts, by sender; of own multicasts, under 0. */
    private final Map<Integer, Long> reached = new HashMap<>();
    private final Map<Long, Payloads> payloads = new HashMap<>();
    private final Map<Integer, Long> counts = new TreeMap<>();
    private final Map<Integer, String> senders = new HashMap<>();
    /**
     * Fair: who calls first is written first. Several threads of JGroups may call at one time, and a
     * plain lock may let the last of them in before the others.
     */
    private final ReentrantLock turns = new ReentrantLock(true);
    private long received, bytes, strangers;

    Inbox(Trace trace, Names names, long seed, Flaw flaw) {
        this.trace = trace;
        this.names = names;
        this.seed = seed;
        this.flaw = flaw;
    }

    @Override
    public void receive(Message message) {
        inTurn(() -> flaw.pass(message, names.address().equals(message.getSrc()), this::take));
    }

    private void inTurn(Runnable write) {
        turns.lock();
        try {
            synchronized (trace) {
                write.run();
            }
        } finally {
            turns.unlock();
        }
    }

    private void take(Message message, byte[] body) {
        boolean isCast = message.getDest() == null;
        Address source = message.getSrc();
        int peer = source == null ? -1 : Names.shortOf(source);
        int dest = isCast ? 0 : names.me();
        long key = ((long) peer << 32) ^ (dest & 0xFFFFFFFFL);
        long index = payloads.computeIfAbsent(key, each -> new Payloads(seed, peer, dest)).indexOf(body);
        if (index < 0) strangers++;
        received++;
        bytes += body.length;
        counts.merge(peer, 1L, Long::sum);
        if (source != null) senders.put(peer, names.nameOf(source));
        boolean isEarly = message.isFlagSet(Message.Flag.OOB);
        write(isCast, peer, index, isEarly, body);
    }

    private void write(boolean isCast, int peer, long index, boolean isEarly, byte[] body) {
        long number = index + 1;
        int epoch = 1;
        if (isCast && peer != names.me()) {
            Window window = windows.computeIfAbsent(peer, each -> new Window(trace, each));
            if (index < 0) number = window.next();
            epoch = window.take(number, isEarly);
        } else {
            int key = isCast ? 0 : peer;
            if (index < 0) number = reached.getOrDefault(key, 0L) + 1;
            if (!isEarly) reached.merge(key, number, Math::max);
            if (isCast) epoch = 0;
        }
        var delivered = event(Trace.DELIVERED, isCast, peer, number, isEarly, body);
        // A window of JGroups hands over by calling the application: both happen at once.
        trace.write(delivered.epoch(epoch).view(names.view()),
            event(Trace.HANDED, isCast, peer, number, isEarly, body));
    }

    private static Event event(int kind, boolean isCast, int peer, long number, boolean isEarly, byte[] body) {
        return new Event(kind).flags(isEarly ? Trace.OOB : 0)
            .protocol(isCast ? Trace.NAKACK2 : Trace.UNICAST3)
            .peer(peer).conn(isCast ? 0 : 1).message(number).body(body);
    }

    @Override
    public void viewAccepted(View view) {
        inTurn(() -> install(view));
    }

    private void install(View view) {
        List<Address> members = flaw.members(view.getMembers(), names.address());
        List<Integer> there = new ArrayList<>();
        members.forEach(each -> there.add(Names.shortOf(each)));
        boolean isMerge = view instanceof MergeView;
        windows.forEach((peer, window) -> {
            if (isMerge || !there.contains(peer)) window.end(isMerge ? "merge" : "view", names.view());
        });
        names.install(view);
        long number = view.getViewId().getId();
        var installed = new Event(Trace.VIEW).stream(isMerge ? Trace.MERGE : 0)
            .peer(Names.shortOf(view.getCreator())).view((int) number).count(members.size()).lo(number)
            .text(there.stream().map(each -> String.format("%08x", each)).collect(Collectors.joining(",")));
        trace.write(installed);
        if (flaw == Flaw.AGAIN) trace.write(installed);
        for (int peer : there)
            if (peer != names.me()) windows.computeIfAbsent(peer, each -> new Window(trace, each)).begin();
    }

    /** Have windows that brought nothing written, too. */
    void settle() {
        synchronized (trace) {
            windows.values().forEach(Window::settle);
        }
    }

    Map<String, Object> state() {
        synchronized (trace) {
            Map<String, Object> from = new TreeMap<>();
            counts.forEach((peer, count) ->
                from.put(senders.getOrDefault(peer, "?") + ":" + Integer.toHexString(peer), count));
            Map<String, Object> found = new TreeMap<>();
            found.put("received", received);
            found.put("received_bytes", bytes);
            found.put("mismatches", strangers);
            found.put("received_from", from);
            found.put("unfinished_bytes", 0);
            found.put("standing_gaps", 0);
            return found;
        }
    }
}
