package stormcast;

import stormcast.Trace.Event;

/**
 * What an application has of one member's multicasts, cut where the application was told of a break:
 * its view lost the sender or got it back, or was a merge. Each part is an epoch of the trace.
 *
 * <p>JGroups does not tell where a part begins. So a part is opened in the trace when the first
 * message of it comes, right before that message. If none comes, nobody knows where it would have
 * begun: of what was sent before the receiver had the sender nothing is then owed.
 */
final class Window {
    /** The highest number that a trace may hold. */
    private static final long NOBODY_KNOWS = (1L << 62) - 1;

    private final Trace trace;
    private final int peer;
    private int epoch;
    /** The highest number that came in order, in all epochs. */
    private long reached;
    /** The lowest number that came early while the epoch was not opened; 0: none. */
    private long early;
    private boolean isOpened, isEnded = true;

    Window(Trace trace, int peer) {
        this.trace = trace;
        this.peer = peer;
    }

    /** The number that an application expects next. */
    long next() {
        return reached + 1;
    }

    /** The view has the sender: whatever comes now is of an epoch. */
    void begin() {
        if (!isEnded) return;
        epoch++;
        early = 0;
        isOpened = isEnded = false;
    }

    /** The application was told of a break. */
    void end(String why, int view) {
        if (isEnded) return;
        open(NOBODY_KNOWS);
        trace.write(conn(Trace.RECEIVER_REMOVED, view).lo(reached).text(why));
        isEnded = true;
    }

    /** At the end of a run: also what brought nothing is there to be judged. */
    void settle() {
        if (!isEnded) open(NOBODY_KNOWS);
    }

    /** Note a message that came; returns its epoch. */
    int take(long number, boolean isEarly) {
        // The last message of a sender may come after the view that lacks it: it ends what went before.
        if (isEnded && (epoch == 0 || number != next())) begin();
        if (!isEnded && !isEarly) open(number - 1);
        if (isEarly && !isOpened && (early == 0 || number < early)) early = number;
        if (!isEarly) reached = Math.max(reached, number);
        return epoch;
    }

    private void open(long after) {
        if (isOpened) return;
        isOpened = true;
        long begins = early == 0 ? after : Math.min(after, early - 1);
        trace.write(conn(Trace.RECEIVER_OPEN, 0).lo(begins).text("view"));
    }

    private Event conn(int state, int view) {
        return new Event(Trace.CONN).protocol(Trace.NAKACK2).stream(state).peer(peer).epoch(epoch).view(view);
    }
}
