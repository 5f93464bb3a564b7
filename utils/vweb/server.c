/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/cli.h"
#include "content/document.h"
#include "vweb/guard.h"
#include "vweb/request.h"
#include <errno.h>
#include <gio/gio.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * HTTP, by libmicrohttpd: a thread for each connection, so that a long list holds up nothing else. `answer` checks each
 * request, in this order, before it calls a function of the interface:
 *
 *   Host             is this server: else it is a page whose name leads here (DNS rebinding)
 *   Sec-Fetch-Site   if the browser sends it: the page is ours
 *   X-Wayback-Token  is the token, except for the page itself (it has nothing secret) and for downloads (tickets)
 *   of a POST        Origin is this server, the content is JSON and short
 *
 * The token is no cookie: a browser sends cookies to each port of this machine, also to a server of somebody else.
 */

#define CONNECTIONS_MAX 32
#define CONNECTION_MEMORY (64 * 1024)
#define IDLE_SECONDS 60
#define STACK_SIZE (4 * 1024 * 1024)
#define BODY_MAX (64 * 1024)
#define DISCARDED_MAX (1024 * 1024)
#define TRIES 16

#define API "/api/v1/"
#define DOWNLOAD "/download/"
#define RESOURCES "/org/wayback/web/"

struct web_server {
    struct web *web;
    struct MHD_Daemon *daemons[2]; /* NULL: not used */
    unsigned port;
};

/* ---- the functions of the interface ---------------------------------------------------------------- */

static const struct {
    const char *name;
    bool is_post;
    web_function *function;
} functions[] = {
    {"session", false, web_get_session},     {"list", false, web_get_list},       {"versions", false, web_get_versions},
    {"time", false, web_get_time},           {"snapshots", false, web_get_snapshots},
    {"content", false, web_get_content},     {"image", false, web_get_image},     {"diff", false, web_get_diff},
    {"changes", false, web_get_changes},     {"log", false, web_get_log},         {"next", false, web_get_next},
    {"ticket", true, web_post_ticket},
    {"plan", true, web_post_plan},           {"restore", true, web_post_restore},
};

/* ---- replies ------------------------------------------------------------------------------------- */

static const char page_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
static const char content_policy[] = "default-src 'none'; sandbox; frame-ancestors 'none'";

static void add_headers(struct MHD_Response *response, const struct web_reply *reply, bool is_page)
{
    const char *const headers[][2] = {
        {"Content-Type", reply->type},
        {"Content-Security-Policy", is_page ? page_policy : content_policy},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cache-Control", "no-store"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(headers); i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    if (reply->file_name) {
        g_autofree char *encoded = g_uri_escape_bytes((const guint8 *)reply->file_name, strlen(reply->file_name), NULL);
        g_autofree char *value = g_strconcat("attachment; filename*=UTF-8''", encoded, NULL);

        MHD_add_response_header(response, "Content-Disposition", value);
    }
}

/* Frees what the reply has. */
static enum MHD_Result send_reply(struct MHD_Connection *connection, struct web_reply *reply, bool is_page)
{
    struct MHD_Response *response;
    enum MHD_Result r = MHD_NO;

    if (reply->fd >= 0) {
        response = MHD_create_response_from_fd64(reply->size, reply->fd);
        if (!response)
            close(reply->fd);
    } else {
        gsize size = 0;
        const void *bytes = reply->bytes ? g_bytes_get_data(reply->bytes, &size) : NULL;

        response = MHD_create_response_from_buffer(size, (void *)bytes, MHD_RESPMEM_MUST_COPY);
    }
    if (response) {
        add_headers(response, reply, is_page);
        if (reply->status == MHD_HTTP_METHOD_NOT_ALLOWED)
            MHD_add_response_header(response, "Allow", "GET, HEAD, POST");
        r = MHD_queue_response(connection, reply->status, response);
        MHD_destroy_response(response);
    }
    if (reply->bytes)
        g_bytes_unref(reply->bytes);
    g_free(reply->file_name);
    return r;
}

/* ---- the page ------------------------------------------------------------------------------------ */

static void get_page(const char *url, struct web_reply *reply)
{
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *name = strcmp(url, "/") == 0 ? "index.html" : url + 1;
    g_autofree char *path = g_strconcat(RESOURCES, name, NULL);

    reply->bytes = strchr(name, '/') ? NULL : g_resources_lookup_data(path, G_RESOURCE_LOOKUP_FLAGS_NONE, NULL);
    if (!reply->bytes) {
        web_reply_error(reply, MHD_HTTP_NOT_FOUND, "absent", "there is no such page");
        return;
    }
    reply->status = MHD_HTTP_OK;
    reply->type = "application/octet-stream";
    for (size_t i = 0; i < G_N_ELEMENTS(types); i++)
        if (g_str_has_suffix(name, types[i][0]))
            reply->type = types[i][1];
}

/* ---- requests ------------------------------------------------------------------------------------ */

/* Of one request, while it is read. */
struct arrival {
    GString *body;
    uint64_t size; /* that arrived; the body may have less */
    bool too_long;
};

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static bool is_json(const char *type)
{
    g_autofree char *media = type ? g_strndup(type, strcspn(type, ";")) : NULL;

    return media && g_ascii_strcasecmp(g_strstrip(media), "application/json") == 0;
}

/* Further conditions for a POST. False after an error reply. */
static bool is_allowed_to_change(struct MHD_Connection *connection, const struct arrival *arrival,
                                 struct web_reply *reply)
{
    if (!web_origin_is_ours(header(connection, "Origin"), header(connection, "Host")))
        web_reply_error(reply, MHD_HTTP_FORBIDDEN, "denied", "the request comes from another page (Origin)");
    else if (!is_json(header(connection, "Content-Type")))
        web_reply_error(reply, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "usage", "Content-Type must be application/json");
    else if (arrival->too_long)
        web_reply_error(reply, MHD_HTTP_CONTENT_TOO_LARGE, "usage", "the request is longer than %d bytes", BODY_MAX);
    else
        return true;
    return false;
}

static void call(struct web *web, struct MHD_Connection *connection, const char *name, bool is_post,
                 const struct arrival *arrival, struct web_reply *reply)
{
    struct web_request request = {.web = web, .connection = connection};
    web_function *function = NULL;
    bool is_known = false;

    for (size_t i = 0; i < G_N_ELEMENTS(functions); i++) {
        if (strcmp(functions[i].name, name) != 0)
            continue;
        is_known = true;
        if (functions[i].is_post == is_post)
            function = functions[i].function;
    }
    if (!function) {
        web_reply_error(reply, is_known ? MHD_HTTP_METHOD_NOT_ALLOWED : MHD_HTTP_NOT_FOUND, "usage",
                        is_known ? "the method is wrong" : "there is no such function");
        return;
    }
    if (is_post && !is_allowed_to_change(connection, arrival, reply))
        return;
    if (is_post) {
        request.body = document_parse(arrival->body->str);
        if (!request.body) {
            web_reply_error(reply, MHD_HTTP_BAD_REQUEST, "usage", "the request is no JSON object");
            return;
        }
    }
    function(&request, reply);
    g_clear_pointer(&request.body, json_object_unref);
}

/* Checks the request, and has it answered. True: the reply is the page. */
static bool answer(struct web *web, struct MHD_Connection *connection, const char *url, bool is_post,
                   const struct arrival *arrival, struct web_reply *reply)
{
    const char *site = header(connection, "Sec-Fetch-Site");

    if (!web_host_is_ours(web, header(connection, "Host"))) {
        web_reply_error(reply, MHD_HTTP_MISDIRECTED_REQUEST, "denied", "this server has another name (Host)");
        return false;
    }
    if (!is_post && !g_str_has_prefix(url, API) && !g_str_has_prefix(url, DOWNLOAD)) {
        get_page(url, reply);
        return reply->status == MHD_HTTP_OK;
    }
    if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0) {
        web_reply_error(reply, MHD_HTTP_FORBIDDEN, "denied", "the request comes from another page (Sec-Fetch-Site)");
        return false;
    }
    if (!is_post && g_str_has_prefix(url, DOWNLOAD)) {
        struct web_request request = {.web = web, .connection = connection};

        web_get_download(&request, url + strlen(DOWNLOAD), reply);
        return false;
    }
    if (!web_token_is(web->token, header(connection, "X-Wayback-Token"))) {
        web_reply_error(reply, MHD_HTTP_UNAUTHORIZED, "denied",
                        "the token is missing or wrong; open the address that 'wayback web' printed");
        return false;
    }
    call(web, connection, g_str_has_prefix(url, API) ? url + strlen(API) : "", is_post, arrival, reply);
    return false;
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct web *web = data;
    struct arrival *arrival = *state;
    struct web_reply reply = {.fd = -1};
    bool is_post = strcmp(method, MHD_HTTP_METHOD_POST) == 0, is_page;

    (void)version;
    if (!arrival) {
        arrival = g_new0(struct arrival, 1);
        arrival->body = g_string_new(NULL);
        *state = arrival;
        return MHD_YES;
    }
    if (*upload_size > 0) {
        arrival->too_long = arrival->too_long || arrival->body->len + *upload_size > BODY_MAX;
        if (!arrival->too_long)
            g_string_append_len(arrival->body, upload, (gssize)*upload_size);
        arrival->size += *upload_size;
        *upload_size = 0;
        /* A body that has no end is cut off; one that is only too long gets an answer. */
        return arrival->size > DISCARDED_MAX ? MHD_NO : MHD_YES;
    }
    if (!is_post && strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        web_reply_error(&reply, MHD_HTTP_METHOD_NOT_ALLOWED, "usage", "the method is not supported");
        return send_reply(connection, &reply, false);
    }
    is_page = answer(web, connection, url, is_post, arrival, &reply);
    return send_reply(connection, &reply, is_page);
}

static void on_end(void *data, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
    struct arrival *arrival = *state;

    (void)data;
    (void)connection;
    (void)code;
    if (arrival) {
        g_string_free(arrival->body, TRUE);
        g_free(arrival);
        *state = NULL;
    }
}

/* libmicrohttpd reports each connection that a browser ends early: that is no error of ours. */
static void on_log(void *data, const char *format, va_list arguments)
{
    (void)data;
    (void)format;
    (void)arguments;
}

/* ---- listening ----------------------------------------------------------------------------------- */

/* A listening socket, or -errno. *port: 0: a free one; becomes the one that it has. */
static int listen_at(const struct addrinfo *info, unsigned *port)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, error;
    struct sockaddr_storage address = {0};
    socklen_t size = info->ai_addrlen;

    if (fd < 0)
        return -errno;
    memcpy(&address, info->ai_addr, size);
    if (info->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)&address)->sin6_port = htons((uint16_t)*port);
    else
        ((struct sockaddr_in *)(void *)&address)->sin_port = htons((uint16_t)*port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (info->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, CONNECTIONS_MAX) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0) {
        error = errno;
        close(fd);
        return -error;
    }
    *port = ntohs(info->ai_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&address)->sin6_port
                                              : ((struct sockaddr_in *)(void *)&address)->sin_port);
    return fd;
}

/* As listen_at, by the text of an address. -EADDRNOTAVAIL: it is none. */
static int listen_at_text(const char *text, unsigned *port)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_PASSIVE};
    struct addrinfo *found = NULL;
    int fd;

    if (getaddrinfo(text, NULL, &hints, &found) != 0)
        return -EADDRNOTAVAIL;
    fd = listen_at(found, port);
    freeaddrinfo(found);
    return fd;
}

/*
 * On both loopback addresses, at the same port: a browser takes either for "localhost", and nobody else gets the other
 * one. If there is no IPv6, on the first alone. 0 or -errno.
 */
static int listen_on_loopback(unsigned wanted, int fds[2], unsigned *port)
{
    for (int i = 0; i < TRIES; i++) {
        *port = wanted;
        fds[0] = listen_at_text("127.0.0.1", port);
        if (fds[0] < 0)
            return fds[0];
        fds[1] = listen_at_text("::1", port);
        if (fds[1] != -EADDRINUSE)
            return 0;
        close(fds[0]);
        fds[0] = -1;
        if (wanted)
            break;
    }
    return -EADDRINUSE;
}

static struct MHD_Daemon *start(struct web *web, int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC |
                     MHD_USE_ERROR_LOG;

    getsockname(fd, (struct sockaddr *)&address, &size);
    if (address.ss_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    return MHD_start_daemon(flags, 0, NULL, NULL, on_request, web, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
                            MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
                            MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_SIZE, MHD_OPTION_STRICT_FOR_CLIENT, 1,
                            MHD_OPTION_END);
}

/* The names by which a browser may call us. */
static void add_hosts(struct web *web, const char *address)
{
    static const char *const loopback[] = {"localhost", "127.0.0.1", "::1"};

    web->hosts = g_ptr_array_new();
    for (size_t i = 0; i < G_N_ELEMENTS(loopback); i++)
        g_ptr_array_add(web->hosts, (char *)loopback[i]);
    if (!address)
        return;
    g_ptr_array_add(web->hosts, (char *)address);
    g_ptr_array_add(web->hosts, (char *)g_get_host_name());
    web->any_address = strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
}

struct web_server *web_server_new(struct web *web, const char *address, unsigned port)
{
    struct web_server *server = g_new0(struct web_server, 1);
    int fds[2] = {-1, -1}, r;

    server->web = web;
    server->port = port;
    if (address)
        r = fds[0] = listen_at_text(address, &server->port);
    else
        r = listen_on_loopback(port, fds, &server->port);
    if (r < 0) {
        wb_cli_fail(NULL, "cannot listen on %s, port %u: %s", address ? address : "127.0.0.1", port, g_strerror(-r));
        g_free(server);
        return NULL;
    }
    add_hosts(web, address);
    for (int i = 0; i < 2; i++) {
        server->daemons[i] = fds[i] >= 0 ? start(web, fds[i]) : NULL;
        if (fds[i] < 0 || server->daemons[i])
            continue;
        wb_cli_fail(NULL, "libmicrohttpd cannot start a server");
        close(fds[i]);
        return web_server_free(server);
    }
    return server;
}

unsigned web_server_port(const struct web_server *server)
{
    return server->port;
}

struct web_server *web_server_free(struct web_server *server)
{
    for (int i = 0; server && i < 2; i++)
        if (server->daemons[i])
            MHD_stop_daemon(server->daemons[i]);
    g_free(server);
    return NULL;
}
