package stormcast;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonParser;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Locale;
import java.util.Map;

/** HTTP over a unix socket that only its owner may open: one request a connection, a few at a time. */
final class Control {
    private static final int MOST_HEADERS = 8 << 10, MOST_BODY = 64 << 10, AT_A_TIME = 8;

    private final ServerSocketChannel server;
    private final Handler handler;
    private final Gson gson = new GsonBuilder().serializeNulls().create();

    /** Answers a request: a value that becomes JSON, or {@link Loads.Refused}; null: no such verb. */
    interface Handler {
        Object answer(String method, String target, JsonElement body);
    }

    Control(String path, Handler handler) throws IOException {
        this.handler = handler;
        server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        server.bind(UnixDomainSocketAddress.of(path));
        Files.setPosixFilePermissions(Path.of(path), PosixFilePermissions.fromString("rw-------"));
        for (int i = 0; i < AT_A_TIME; i++) {
            var thread = new Thread(this::serve, "control");
            thread.setDaemon(true);
            thread.start();
        }
    }

    private void serve() {
        while (true) {
            try (SocketChannel client = server.accept()) {
                answer(client);
            } catch (IOException gone) {
                // Whoever asked is gone, and the next one is served.
                System.err.println("control: " + gone.getMessage());
            }
        }
    }

    private void answer(SocketChannel client) throws IOException {
        InputStream in = new BufferedInputStream(Channels.newInputStream(client));
        String[] lines = head(in).split("\r\n");
        String[] words = lines[0].split(" ");
        int status = 200;
        Object said;
        try {
            if (words.length != 3) throw new Loads.Refused("write METHOD TARGET HTTP/1.1");
            String body = new String(in.readNBytes(size(lines)), StandardCharsets.UTF_8);
            said = handler.answer(words[0], words[1], body.isBlank() ? null : JsonParser.parseString(body));
            if (said == null) {
                status = 404;
                said = Map.of("error", words[1] + ": a member of JGroups has no such verb; use members of Stormcast");
            }
        } catch (RuntimeException refusal) {
            // Of Gson, too, which has one for each way in which a value is another one than was asked for.
            status = 400;
            said = Map.of("error", String.valueOf(refusal.getMessage()));
        }
        byte[] text = gson.toJson(said).getBytes(StandardCharsets.UTF_8);
        String front = "HTTP/1.1 " + status + (status == 200 ? " OK" : " No") + "\r\nContent-Type: application/json\r\n"
            + "Content-Length: " + text.length + "\r\nConnection: close\r\n\r\n";
        var whole = ByteBuffer.allocate(front.length() + text.length);
        whole.put(front.getBytes(StandardCharsets.US_ASCII)).put(text).flip();
        while (whole.hasRemaining()) client.write(whole);
    }

    private static String head(InputStream in) throws IOException {
        var found = new StringBuilder();
        while (found.indexOf("\r\n\r\n") < 0) {
            int next = in.read();
            if (next < 0 || found.length() > MOST_HEADERS) throw new IOException("a request was cut short");
            found.append((char) next);
        }
        return found.toString();
    }

    private static int size(String[] lines) {
        for (String line : lines) {
            String low = line.toLowerCase(Locale.ROOT);
            if (!low.startsWith("content-length:")) continue;
            int size = Integer.parseInt(low.substring("content-length:".length()).trim());
            if (size < 0 || size > MOST_BODY) throw new Loads.Refused("a body has 64 KiB at most");
            return size;
        }
        return 0;
    }
}
