package stormcast;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jgroups.Address;
import org.jgroups.View;
import org.jgroups.util.NameCache;
import org.jgroups.util.UUID;

/** Who this member is, who is in its view, and how they are called. */
final class Names {
    private final UUID me;
    private final String name;
    private volatile View view;

    Names(UUID me, String name) {
        this.me = me;
        this.name = name;
    }

    int me() {
        return shortOf(me);
    }

    Address address() {
        return me;
    }

    /** The id that frames and traces of Stormcast have: 32 bits of the 128 of an address; 0 is nobody. */
    static int shortOf(Address address) {
        int found = address instanceof UUID ? (int) ((UUID) address).getLeastSignificantBits() : -1;
        return found == 0 ? 1 : found;
    }

    static String identityOf(UUID address) {
        return String.format("%016x%016x", address.getMostSignificantBits(), address.getLeastSignificantBits());
    }

    void install(View next) {
        view = next;
    }

    View installed() {
        return view;
    }

    /** The low half of the number of the view, 0 before the first. */
    int view() {
        View now = view;
        return now == null ? 0 : (int) now.getViewId().getId();
    }

    boolean has(int peer) {
        View now = view;
        return now != null && now.getMembers().stream().anyMatch(each -> shortOf(each) == peer);
    }

    String nameOf(Address address) {
        if (me.equals(address)) return name;
        String found = NameCache.get(address);
        return found == null ? String.format("%08x", shortOf(address)) : found;
    }

    /** The members of the view by name; of two with one name the one listed last. */
    Map<String, Address> there() {
        Map<String, Address> found = new LinkedHashMap<>();
        View now = view;
        for (Address each : now == null ? List.<Address>of() : now.getMembers())
            found.put(nameOf(each), each);
        return found;
    }

    Map<String, Object> describe(Address address) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("name", nameOf(address));
        found.put("short", String.format("%08x", shortOf(address)));
        found.put("identity", identityOf((UUID) address));
        found.put("where", "");
        return found;
    }

    Map<String, Object> describeMe() {
        return describe(me);
    }

    Map<String, Object> describeView() {
        View now = view;
        if (now == null) return null;
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("id", nameOf(now.getCreator()) + ":" + now.getViewId().getId());
        found.put("number", now.getViewId().getId());
        found.put("coordinator", nameOf(now.getCoord()));
        found.put("members", now.getMembers().stream().map(this::describe).toList());
        return found;
    }
}
