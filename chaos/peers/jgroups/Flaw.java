package stormcast;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.BiConsumer;
import org.jgroups.Address;
import org.jgroups.Message;

/**
 * What an application does wrong on purpose, so that judges can be judged: one message of each kind
 * is lost, taken twice, swapped with the next one or altered; or views are noted in another order
 * (VIEW), without the others (ALONE), without itself (OUT) or twice (AGAIN).
 */
enum Flaw {
    NONE, DROP, TWICE, SWAP, ALTER, VIEW, ALONE, OUT, AGAIN;

    /** The message that is struck, counted over all that come from others. */
    private static final int STRUCK = 20;

    private int casts, unicasts;
    private Message held;

    static Flaw of(String word) {
        for (Flaw each : values()) if (each.name().equalsIgnoreCase(word)) return each;
        throw new IllegalArgumentException("no flaw " + word + ": see docs/jgroups.md");
    }

    void pass(Message message, boolean isOwn, BiConsumer<Message, byte[]> take) {
        byte[] body = bodyOf(message);
        if (isOwn) {
            take.accept(message, body);
            return;
        }
        boolean isStruck = (message.getDest() == null ? ++casts : ++unicasts) == STRUCK;
        if (held != null && held.getSrc().equals(message.getSrc()) && isCast(held) == isCast(message)) {
            Message late = held;
            held = null;
            take.accept(message, body);
            take.accept(late, bodyOf(late));
            return;
        }
        if (isStruck && this == DROP) return;
        if (isStruck && this == SWAP && held == null) {
            held = message;
            return;
        }
        if (isStruck && this == ALTER) body[body.length - 1] ^= 1;
        take.accept(message, body);
        if (isStruck && this == TWICE) take.accept(message, body);
    }

    private static boolean isCast(Message message) {
        return message.getDest() == null;
    }

    private static byte[] bodyOf(Message message) {
        byte[] body = new byte[message.getLength()];
        if (body.length > 0) System.arraycopy(message.getArray(), message.getOffset(), body, 0, body.length);
        return body;
    }

    /** The members of a view, as the application notes them. */
    List<Address> members(List<Address> of, Address me) {
        List<Address> found = new ArrayList<>(of);
        if (this == VIEW) Collections.reverse(found);
        if (this == ALONE) found.retainAll(List.of(me));
        if (this == OUT && found.size() > 1) found.remove(me);
        return found;
    }
}
