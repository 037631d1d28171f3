package stormcast;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jgroups.Address;

/** The loads of this member, written as in docs/node.md: each of them to each destination is a thread. */
final class Loads {
    private static final int MOST = 64;
    /** Seconds' worth of messages that are sent late; beyond that, the schedule is moved back. */
    private static final double CATCH_UP = 1.0;
    private static final long LOOK_MILLIS = 20;
    private static final Pattern SIZE = Pattern.compile("(\\d+)(B|KB|KiB|MB|MiB)");
    private static final Pattern RATE = Pattern.compile("([0-9.e+]+)/s");
    private static final Map<String, Integer> UNITS =
        Map.of("B", 1, "KB", 1000, "KiB", 1 << 10, "MB", 1_000_000, "MiB", 1 << 20);

    private final Outbox outbox;
    private final Names names;
    private final String me;
    private final List<Load> loads = new CopyOnWriteArrayList<>();
    private final Map<String, Object> errors = new ConcurrentHashMap<>();

    Loads(Outbox outbox, Names names, String me) {
        this.outbox = outbox;
        this.names = names;
        this.me = me;
    }

    /** Whatever cannot be meant here; the text is one line, with the remedy. */
    static final class Refused extends RuntimeException {
        private static final long serialVersionUID = 1;

        Refused(String text) {
            super(text);
        }
    }

    private final class Load {
        final JsonObject words;
        final int least, most, burst, every;
        final long count;
        final double rate, begin = Trace.now();
        final String label;
        final boolean isEarly;
        final Map<String, Sending> to = new LinkedHashMap<>();
        volatile boolean isStopped;
        volatile String error = "";

        Load(JsonObject words) {
            this.words = words;
            String[] sizes = text("size", "100B").split("\\.\\.");
            least = bytes(sizes[0]);
            most = bytes(sizes[sizes.length - 1]);
            if (least < Payloads.LEAST)
                throw new Refused("size " + least + "B: JGroups' messages are known by 16 bytes; write 16B or more");
            burst = (int) number("burst", 1);
            every = (int) number("oob_every", 0);
            count = number("count", 1000);
            Matcher found = RATE.matcher(text("rate", "200/s"));
            if (!found.matches()) throw new Refused("rate " + text("rate", "") + ": write one such as 20/s");
            rate = Double.parseDouble(found.group(1));
            label = text("label", "");
            isEarly = isAllowed();
            if ("multicast".equals(text("do", ""))) to.put("group", new Sending(this, null));
            else for (String dest : dests()) to.put(dest, new Sending(this, dest));
        }

        private boolean isAllowed() {
            List<String> flags = new ArrayList<>();
            if (words.has("flags"))
                for (JsonElement each : listOf(words.get("flags"))) flags.add(each.getAsString());
            for (String flag : flags)
                if (!flag.equals("OOB")) throw new Refused("flag " + flag + ": a member of JGroups here knows only OOB");
            for (String key : List.of("closed", "duration", "start"))
                if (words.has(key)) throw new Refused(key + ": a member of JGroups here sends by count and rate");
            return !flags.isEmpty();
        }

        private List<String> dests() {
            List<String> found = new ArrayList<>();
            if (words.has("to")) for (JsonElement each : listOf(words.get("to"))) found.add(each.getAsString());
            if (found.isEmpty() || found.contains("others") || found.contains("all"))
                throw new Refused("to: name the members; a member of JGroups here sends to those alone");
            return found;
        }

        private String text(String key, String otherwise) {
            return words.has(key) ? words.get(key).getAsString() : otherwise;
        }

        private long number(String key, long otherwise) {
            return words.has(key) ? words.get(key).getAsLong() : otherwise;
        }

        boolean isOver() {
            return isStopped || !error.isEmpty() || to.values().stream().allMatch(Sending::isDone);
        }

        Map<String, Object> state() {
            Map<String, Object> dests = new LinkedHashMap<>();
            to.forEach((dest, sending) -> dests.put(dest, Map.of(
                "accepted", sending.accepted, "refused", 0, "put_off", sending.putOff, "there", sending.isThere())));
            JsonObject load = words.deepCopy();
            load.addProperty("count", count);
            return Map.of("load", load, "over", isOver(), "error", error, "to", dests);
        }
    }

    /** A load to one destination. */
    private final class Sending implements Runnable {
        private final Load load;
        private final String dest;
        private volatile long accepted;
        private volatile double putOff;

        Sending(Load load, String dest) {
            this.load = load;
            this.dest = dest;
        }

        boolean isDone() {
            return accepted >= load.count;
        }

        boolean isThere() {
            return dest == null || names.there().containsKey(dest);
        }

        @Override
        public void run() {
            try {
                while (!isDone() && !load.isStopped && load.error.isEmpty()) step();
            } catch (InterruptedException end) {
                Thread.currentThread().interrupt();
            } catch (Exception error) {
                load.error = String.valueOf(error.getMessage());
                if (!load.label.isEmpty()) errors.putIfAbsent(load.label, load.error);
            }
        }

        /** Send what is due, then wait. The n-th message is due where the schedule puts it. */
        private void step() throws Exception {
            Address to = dest == null ? null : names.there().get(dest);
            if (dest != null && to == null) {
                Thread.sleep(LOOK_MILLIS);
                return;
            }
            double begin = load.begin + putOff;
            long bursts = (long) ((Trace.now() - begin) * load.rate / load.burst) + 1;
            long owed = bursts * load.burst - accepted;
            long most = Math.max(load.burst, (long) (load.rate * CATCH_UP));
            if (owed > most) {
                long beyond = (owed - most + load.burst - 1) / load.burst;
                putOff += beyond * load.burst / load.rate;
                owed -= beyond * load.burst;
            }
            for (long i = Math.min(owed, load.count - accepted); i > 0 && !load.isStopped; i--) {
                boolean isEarly = load.every > 0 && (outbox.accepted(to) + 1) % load.every == 0;
                outbox.send(to, load.least, load.most, load.isEarly || isEarly);
                accepted++;
            }
            double next = load.begin + putOff + (accepted / load.burst) * load.burst / load.rate;
            long millis = (long) Math.ceil((next - Trace.now()) * 1000);
            Thread.sleep(Math.max(1, Math.min(millis, LOOK_MILLIS)));
        }
    }

    private static int bytes(String text) {
        Matcher found = SIZE.matcher(text);
        if (!found.matches()) throw new Refused("size " + text + ": write bytes such as 100B");
        return Integer.parseInt(found.group(1)) * UNITS.get(found.group(2));
    }

    private static JsonArray listOf(JsonElement value) {
        if (value.isJsonArray()) return value.getAsJsonArray();
        var list = new JsonArray();
        list.add(value);
        return list;
    }

    /** Begin the loads of which this member is a source. */
    void begin(JsonElement body) {
        List<Load> fresh = new ArrayList<>();
        for (JsonElement each : listOf(body)) {
            JsonObject words = each.getAsJsonObject();
            boolean isMine = !words.has("from");
            if (!isMine) for (JsonElement one : listOf(words.get("from"))) isMine |= one.getAsString().equals(me);
            if (isMine) fresh.add(new Load(words));
        }
        if (loads.stream().filter(each -> !each.isOver()).count() + fresh.size() > MOST)
            throw new Refused("workload: " + MOST + " loads are the most; stop some before you start more");
        for (Load load : fresh) {
            loads.add(load);
            for (Sending each : load.to.values()) {
                var thread = new Thread(each, "load " + load.label);
                thread.setDaemon(true);
                thread.start();
            }
        }
    }

    int stop() {
        int running = 0;
        for (Load each : loads) {
            if (!each.isOver()) running++;
            each.isStopped = true;
        }
        return running;
    }

    Map<String, Object> state() {
        Map<String, Object> found = new TreeMap<>();
        Map<String, Map<String, Long>> labels = new TreeMap<>();
        for (Load load : loads)
            if (!load.label.isEmpty())
                load.to.forEach((dest, sending) -> labels
                    .computeIfAbsent(load.label, each -> new TreeMap<>())
                    .merge(dest, sending.accepted, Long::sum));
        found.put("running", loads.stream().anyMatch(each -> !each.isOver()));
        found.put("loads", loads.stream().map(Load::state).toList());
        found.put("labels", labels);
        found.put("errors", errors);
        found.put("streams", outbox.accepted());
        found.put("waiting", outbox.waiting());
        return found;
    }
}
