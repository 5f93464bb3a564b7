/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vweb/vweb.h"
#include "client/fd.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/mount.h"
#include "common/text.h"
#include "vweb/guard.h"
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * vweb: a tree with all that ever was in it, as a page in a browser. The process has the rights of the user who started
 * it, and the page shows what these allow.
 */

static char *address;
static int port;
static gboolean json, read_only, no_open;

static const GOptionEntry options[] = {
    {"address", 0, 0, G_OPTION_ARG_STRING, &address,
     "Listen on ADDRESS of this machine, without encryption (by default only programs here can connect)", "ADDRESS"},
    {"port", 0, 0, G_OPTION_ARG_INT, &port, "Listen on this port (by default a free one)", "PORT"},
    {"read-only", 0, 0, G_OPTION_ARG_NONE, &read_only, "Restore nothing, only show", NULL},
    {"no-open", 0, 0, G_OPTION_ARG_NONE, &no_open, "Do not open the page in a browser", NULL},
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vweb",
    .arguments = "[PATH]",
    .summary = "Shows a directory with its past as a page in the browser: the tree at any time, versions, changes\n"
               "per hour, differences of texts and images, downloads, restoring. Without PATH: this directory.\n"
               "The page is for you alone: its address has a secret. It ends with Ctrl-C.",
    .examples = "  vweb                        this directory\n"
                "  vweb ~/work/report.txt      its directory, with the file selected\n"
                "  vweb --read-only /srv/www   look, and change nothing\n"
                "  vweb --port 8080 --no-open  for 'ssh -L 8080:127.0.0.1:8080 HOST' from elsewhere\n",
    .paths_max = 1,
    .timeless = true,
    .exit_text = "1 it could not start, 2 wrong usage, 130 ended by Ctrl-C",
};

static int check(void)
{
    unsigned char binary[sizeof(struct in6_addr)];

    if (port < 0 || port > 65535)
        return wb_cli_usage("--port: %d is invalid; it must be 1 to 65535, or 0 for a free one", port);
    if (address && inet_pton(AF_INET, address, binary) != 1 && inet_pton(AF_INET6, address, binary) != 1)
        return wb_cli_usage("--address: '%s' is no IP address, such as 192.168.1.5, 0.0.0.0 or ::", address);
    return -1;
}

/* The directory that is shown; of another PATH, its directory, with that selected. False after an error line. */
static bool choose_directory(struct web *web)
{
    struct wb_place *place = web->place;
    const struct wb_mount *mount = place->mount;
    g_autofree char *parent = NULL;
    const char *name, *top;
    struct stat st;
    int r = wb_place_stat(place, &st);

    if (r == 0 && (st.st_ino & WB_PAST_INODE)) {
        wb_cli_fail(place->given, "is a past state; name the present path, and choose the time in the page");
        return false;
    }
    if (r < 0 || !S_ISDIR(st.st_mode)) {
        parent = wb_path_parent(place->path, &name);
        web->select = g_strdup(name);
        g_free(place->path);
        place->path = g_steal_pointer(&parent);
        r = wb_place_stat(place, &st);
    }
    if (r < 0) {
        wb_cli_fail(place->given, "%s", wb_errno_text(r));
        return false;
    }
    top = mount->private ? mount->hello.source : mount->point;
    web->shown = *place->path ? g_build_filename(top, place->path, NULL) : g_strdup(top);
    return true;
}

static void choose_rights(struct web *web)
{
    const struct wb_mount *mount = web->place->mount;

    web->why_read_only = read_only ? "the page was started with --read-only"
                         : mount->private ? "the tree is not mounted; mount it to restore"
                         : mount->hello.read_only || mount->hello.moment ? "the mount is read-only" : NULL;
    web->read_only = web->why_read_only;
}

/* The address for people: "127.0.0.1", and not "0.0.0.0". */
static char *url_of(const struct web *web, unsigned number)
{
    const char *host = address ? address : "127.0.0.1";
    bool is_v6 = strchr(host, ':');

    if (web->any_address) {
        host = g_get_host_name();
        is_v6 = false;
    }
    return g_strdup_printf("http://%s%s%s:%u/#token=%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "", number, web->token);
}

static void announce(const struct web *web, const char *url, unsigned number)
{
    g_autofree char *shown = wb_text_printable(web->shown);
    g_autoptr(JsonBuilder) builder = NULL;

    if (!json) {
        printf("%s\n%s\n%s%sCtrl-C ends it.\n", shown, url,
               geteuid() == 0 ? "You are root: this address gives access to all of it.\n" : "",
               web->read_only ? "Nothing can be restored.\n" : "");
        fflush(stdout);
    } else {
        builder = json_builder_new();
        json_builder_begin_object(builder);
        wb_json_string(builder, "path", web->shown);
        wb_json_string(builder, "url", url);
        wb_json_string(builder, "address", address ? address : "127.0.0.1");
        wb_json_int(builder, "port", number);
        wb_json_string(builder, "token", web->token);
        wb_json_bool(builder, "read_only", web->read_only);
        wb_json_int(builder, "uid", geteuid());
        json_builder_end_object(builder);
        wb_json_document(builder);
        fflush(stdout);
    }
    if (address && !g_str_has_prefix(address, "127.") && strcmp(address, "::1") != 0)
        wb_cli_warn(NULL, "the connection is not encrypted: its listeners can do all that the page can; 'ssh -L' is "
                          "safe");
}

/* Until a signal. The threads of the server have them blocked, so that this one gets them. */
static void serve(struct web *web)
{
    struct web_server *server;
    g_autofree char *url = NULL;
    char *opened = NULL;
    sigset_t blocked, former;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &blocked, &former);
    server = web_server_new(web, address, (unsigned)port);
    if (server) {
        url = url_of(web, web_server_port(server));
        announce(web, url, web_server_port(server));
        if (!no_open && !json && isatty(STDOUT_FILENO))
            web_open_browser(url, &opened);
        while (!wb_cli_interrupted())
            ppoll(NULL, 0, NULL, &former);
    }
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    web_server_free(server);
    web_opener_end(opened);
}

int main(int argc, char **argv)
{
    struct web web = {0};
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0)
        r = check();
    if (r >= 0)
        return r;
    wb_cli_stopped("%s", "");
    web.place = wb_place_find(argc > 1 ? argv[1] : ".", WB_MOUNT_READ);
    if (web.place && choose_directory(&web)) {
        choose_rights(&web);
        web.tickets = web_tickets_new();
        if (!web_token_make(web.token))
            wb_cli_fail(NULL, "the kernel gives no random bytes");
        else if ((web.restorer = web_restorer_new(&web)))
            serve(&web);
    }
    web_restorer_free(web.restorer);
    web_tickets_free(web.tickets);
    wb_place_free(web.place);
    if (web.hosts)
        g_ptr_array_unref(web.hosts);
    g_free(web.select);
    g_free(web.shown);
    return wb_cli_end();
}
