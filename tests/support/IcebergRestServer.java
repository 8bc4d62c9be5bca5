// A REST catalog of Iceberg's own handlers over a catalog in a database, for one machine.
// Run by `java IcebergRestServer.java <JDBC URL> <warehouse>`: it prints its port, and ends when
// its standard input ends.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.RESTUtil;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

public class IcebergRestServer {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final JdbcCatalog CATALOG = new JdbcCatalog();

  public static void main(String[] args) throws Exception {
    MAPPER.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
    MAPPER.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    MAPPER.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
    RESTSerializers.registerAll(MAPPER);
    CATALOG.setConf(new Configuration());
    CATALOG.initialize("rest", Map.of("uri", args[0], "warehouse", args[1]));
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.createContext("/v1/", IcebergRestServer::serve);
    server.start();
    System.out.println(server.getAddress().getPort());
    while (System.in.read() >= 0) {}
    System.exit(0);
  }

  private static void serve(HttpExchange exchange) throws IOException {
    try (exchange) {
      int status = 200;
      Object answer;
      try {
        answer = answer(exchange);
      } catch (Exception failure) {
        status = status(failure);
        answer =
            ErrorResponse.builder()
                .responseCode(status)
                .withType(failure.getClass().getSimpleName())
                .withMessage(failure.getMessage())
                .build();
      }
      boolean isEmpty = answer == null || exchange.getRequestMethod().equals("HEAD");
      byte[] body = isEmpty ? new byte[0] : MAPPER.writeValueAsBytes(answer);
      exchange.getResponseHeaders().set("Content-Type", "application/json");
      status = status == 200 && isEmpty ? 204 : status;
      exchange.sendResponseHeaders(status, isEmpty ? -1 : body.length);
      if (!isEmpty) {
        exchange.getResponseBody().write(body);
      }
    }
  }

  private static Object answer(HttpExchange exchange) throws IOException {
    List<String> words = List.of(exchange.getRequestURI().getRawPath().substring(4).split("/"));
    String asked = exchange.getRequestMethod();
    if (words.get(0).equals("config")) {
      return Map.of("defaults", Map.of(), "overrides", Map.of());
    }
    if (!words.get(0).equals("namespaces")) {
      throw new UnsupportedOperationException(asked + " " + words);
    }
    if (words.size() == 1) {
      return asked.equals("POST")
          ? CatalogHandlers.createNamespace(CATALOG, read(exchange, CreateNamespaceRequest.class))
          : CatalogHandlers.listNamespaces(CATALOG, Namespace.empty());
    }
    Namespace namespace = RESTUtil.decodeNamespace(words.get(1), "%1F");
    if (words.size() == 2) {
      return CatalogHandlers.loadNamespace(CATALOG, namespace);
    }
    if (words.size() == 3 && words.get(2).equals("tables")) {
      return tables(exchange, namespace);
    }
    if (words.size() == 4 && words.get(2).equals("tables")) {
      return table(exchange, TableIdentifier.of(namespace, RESTUtil.decodeString(words.get(3))));
    }
    throw new NoSuchTableException("Not served: %s", words); // views, metrics
  }

  private static Object tables(HttpExchange exchange, Namespace namespace) throws IOException {
    if (exchange.getRequestMethod().equals("GET")) {
      return CatalogHandlers.listTables(CATALOG, namespace);
    }
    CreateTableRequest request = read(exchange, CreateTableRequest.class);
    return request.stageCreate()
        ? CatalogHandlers.stageTableCreate(CATALOG, namespace, request)
        : CatalogHandlers.createTable(CATALOG, namespace, request);
  }

  private static Object table(HttpExchange exchange, TableIdentifier table) throws IOException {
    switch (exchange.getRequestMethod()) {
      case "HEAD":
        CatalogHandlers.tableExists(CATALOG, table);
        return null;
      case "GET":
        return CatalogHandlers.loadTable(CATALOG, table, SnapshotMode.ALL);
      case "DELETE":
        CatalogHandlers.dropTable(CATALOG, table);
        return null;
      default:
        UpdateTableRequest request = read(exchange, UpdateTableRequest.class);
        return CatalogHandlers.updateTable(CATALOG, table, request);
    }
  }

  private static <T> T read(HttpExchange exchange, Class<T> kind) throws IOException {
    return MAPPER.readValue(exchange.getRequestBody(), kind);
  }

  private static int status(Exception failure) {
    if (failure instanceof NoSuchTableException || failure instanceof NoSuchNamespaceException) {
      return 404;
    }
    if (failure instanceof AlreadyExistsException || failure instanceof CommitFailedException) {
      return 409;
    }
    return failure instanceof IllegalArgumentException ? 400 : 500;
  }
}
