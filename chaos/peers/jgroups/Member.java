package stormcast;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jgroups.JChannel;
import org.jgroups.Version;
import org.jgroups.conf.ConfiguratorFactory;
import org.jgroups.conf.ProtocolConfiguration;
import org.jgroups.conf.ProtocolStackConfigurator;
import org.jgroups.protocols.FD_ALL3;
import org.jgroups.protocols.MERGE3;
import org.jgroups.protocols.VERIFY_SUSPECT2;
import org.jgroups.protocols.pbcast.GMS;
import org.jgroups.stack.Protocol;
import org.jgroups.util.UUID;
import stormcast.Trace.Event;

/**
 * A member of JGroups that a rig can load, ask and judge as one of Stormcast: it writes the same
 * trace of what an application sees, and knows the verbs that a scenario with a group needs.
 *
 * <p>Member --config FILE --name N --stack udp.xml --journal DIR --control SOCKET [--set P.key=value]…
 * [--flaw WORD]; where it binds, and whom it asks, are properties of JGroups.
 */
public final class Member {
    private static final int USAGE = 2;

    private final String name;
    private final JChannel channel;
    private final Trace trace;
    private final Names names;
    private final Inbox inbox;
    private final Outbox outbox;
    private final Loads loads;
    private volatile String state = "connecting";

    private Member(Map<String, String> options, List<String> settings) throws Exception {
        JsonObject config = JsonParser.parseString(Files.readString(Path.of(options.get("--config")))).getAsJsonObject();
        name = options.get("--name");
        long seed = config.has("seed") ? config.get("seed").getAsLong() : 1;
        UUID address = UUID.randomUUID();
        names = new Names(address, name);
        channel = new JChannel(configured(options.get("--stack"), settings));
        channel.setName(name);
        channel.addAddressGenerator(() -> address);
        String wall = System.getenv("SC_WALL_NS");
        long wallNanos = wall != null ? Long.parseLong(wall)
            : System.currentTimeMillis() * 1_000_000 - System.nanoTime();
        trace = new Trace(Path.of(options.get("--journal")), name, names.me(), wallNanos);
        trace.write(new Event(Trace.START).text(name + " " + Names.identityOf(address) + " " + promises()));
        inbox = new Inbox(trace, names, seed, Flaw.of(options.getOrDefault("--flaw", "none")));
        outbox = new Outbox(trace, channel, names, seed);
        loads = new Loads(outbox, names, name);
        channel.setReceiver(inbox);
        new Control(options.get("--control"), this::answer);
        Runtime.getRuntime().addShutdownHook(new Thread(this::leave, "leave"));
        channel.connect(config.get("cluster").getAsString());
        state = "connected";
    }

    /** The stack that ships with JGroups, with a few settings changed. */
    private static ProtocolStackConfigurator configured(String stack, List<String> settings) throws Exception {
        ProtocolStackConfigurator found = ConfiguratorFactory.getStackConfigurator(stack);
        for (String setting : settings) {
            String[] words = setting.split("[.=]", 3);
            boolean isThere = false;
            for (ProtocolConfiguration each : found.getProtocolStack()) {
                String called = each.getProtocolName();
                if (!called.substring(called.lastIndexOf('.') + 1).equals(words[0])) continue;
                each.getProperties().put(words[1], words[2]);
                isThere = true;
            }
            if (!isThere) throw new Loads.Refused("--set " + setting + ": " + stack + " has no such protocol");
        }
        return found;
    }

    /** What a judge is told of this member: how long a group of JGroups may take for what. */
    private String promises() {
        var stack = channel.getProtocolStack();
        Map<String, Object> bounds = new TreeMap<>();
        FD_ALL3 detector = stack.findProtocol(FD_ALL3.class);
        if (detector != null) bounds.put("suspect_within", (detector.getTimeout() + 2 * detector.getInterval()) / 1e3);
        VERIFY_SUSPECT2 verifier = stack.findProtocol(VERIFY_SUSPECT2.class);
        if (verifier != null) bounds.put("verify_within", 2 * verifier.getTimeout() / 1e3);
        MERGE3 merger = stack.findProtocol(MERGE3.class);
        if (merger != null) {
            bounds.put("info_within", merger.getMaxInterval() / 1e3);
            bounds.put("check_within", 1.6 * merger.getMaxInterval() / 1e3);
        }
        GMS membership = stack.findProtocol(GMS.class);
        if (membership != null) bounds.put("merge", membership.getMergeTimeout() / 1e3);
        // A lost last message may be repaired only by a later round of STABLE. No application can see
        // that one is missing, so a rig is to wait long before it takes silence for the end.
        bounds.put("resend_within", 36.0);
        List<String> protocols = new ArrayList<>();
        for (Protocol each : stack.getProtocols()) protocols.add(each.getName());
        Map<String, Object> jgroups = new LinkedHashMap<>();
        jgroups.put("version", Version.description);
        jgroups.put("stack", protocols);
        jgroups.put("bounds", bounds);
        // GMS alone by its own name: a member has views. What its other protocols do nobody tells,
        // so nothing of it is to be judged.
        return new Gson().toJson(Map.of("protocols", Map.of("GMS", Map.of(), "JGROUPS", jgroups)));
    }

    private Object answer(String method, String target, JsonElement body) {
        switch (method + " " + target) {
            case "GET /state":
                Map<String, Object> found = new LinkedHashMap<>(names.describeMe());
                found.put("state", state);
                found.put("view", names.describeView());
                found.put("stats", Map.of());
                found.put("workload", workload());
                found.put("journal", trace.folder().toString());
                return found;
            case "GET /workload":
                return workload();
            case "POST /workload":
                if (!"connected".equals(state)) throw new Loads.Refused("the member is " + state);
                if (body == null) throw new Loads.Refused("workload: write a load, or a list of them");
                loads.begin(body);
                return workload();
            case "POST /workload/stop":
                return Map.of("stopped", loads.stop());
            case "POST /gauge":
                outbox.gauge();
                inbox.settle();
                return Map.of("gauged", true);
            default:
                return null;
        }
    }

    private Map<String, Object> workload() {
        Map<String, Object> found = new TreeMap<>(loads.state());
        found.putAll(inbox.state());
        return found;
    }

    /** What SIGTERM asks for: the group is told, and the journal ends in order. */
    private void leave() {
        state = "leaving";
        loads.stop();
        try {
            channel.close();
            inbox.settle();
            trace.stop();
        } finally {
            Runtime.getRuntime().halt(0);
        }
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> options = new TreeMap<>();
        List<String> settings = new ArrayList<>();
        for (int i = 0; i + 1 < words.length; i += 2)
            if (words[i].equals("--set")) settings.add(words[i + 1]);
            else options.put(words[i], words[i + 1]);
        for (String needed : List.of("--config", "--name", "--stack", "--journal", "--control"))
            if (!options.containsKey(needed)) end(USAGE, "no " + needed + ": it says what docs/jgroups.md says");
        try {
            var member = new Member(options, settings);
            System.err.println(member.name + " is in " + member.channel.getViewAsString());
            Thread.currentThread().join();
        } catch (Loads.Refused | IllegalArgumentException refusal) {
            end(USAGE, refusal.getMessage());
        } catch (Throwable error) {
            error.printStackTrace();
            end(Trace.FAILED, "a member of JGroups could not go on: " + error);
        }
    }

    /** Without a goodbye: what the journal has then is what there is. */
    private static void end(int code, String why) {
        System.err.println(why);
        Runtime.getRuntime().halt(code);
    }
}
