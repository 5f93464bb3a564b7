/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vsend: a tree with its whole history, or the changes since some moment, as one stream for vreceive, or straight
 * to a copy (--to).
 */
#include "common/cli.h"
#include "common/json.h"
#include "common/mount.h"
#include "client/errno_text.h"
#include "client/path.h"
#include "common/progress.h"
#include "common/text.h"
#include "target.h"
#include "wayback/confine.h"
#include "wayback/copy.h"
#include "wayback/when.h"
#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long --follow waits before it looks again: the changes it ships are less than two seconds old. */
#define PAUSE_MS 500
/* How long --follow waits before it connects again; twice as long each time. */
#define RETRY_SECONDS 5
#define RETRY_SECONDS_MAX 60

static char *store_option, *since_option, *to_option, *ssh_option;
static gboolean json, follow, dry_run;
static struct wb_send_target target;
static bool waits; /* a warning with the reason for the delay was printed */

static const GOptionEntry options[] = {
    {"to", 0, 0, G_OPTION_ARG_FILENAME, &to_option,
     "Create or update the copy there, instead of writing a stream: a directory here, or on another machine by ssh",
     "DIR|HOST:DIR"},
    {"since", 0, 0, G_OPTION_ARG_STRING, &since_option,
     "Send only later changes, or the rest of a stream: the output of `vreceive --status DIR`; default 0: everything",
     "TIME"},
    {"follow", 'f', 0, G_OPTION_ARG_NONE, &follow, "Continue with new changes until interrupted", NULL},
    {"ssh", 0, 0, G_OPTION_ARG_STRING, &ssh_option, "The command that reaches HOST, with its options; default: ssh",
     "COMMAND"},
    {"store", 0, 0, G_OPTION_ARG_FILENAME, &store_option, "The store, if it is not SRC/.wayback", "DIR"},
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vsend",
    .plain = true,
    .timeless = true,
    .path_word = "SRC",
    .writes_stream = true,
    .arguments = "SRC",
    .summary = "Copies a tree with its whole history to another place, or the changes since the last time: with --to "
               "directly, else as a stream on standard output for vreceive. SRC is the tree or its mount point; it may "
               "be changed meanwhile.",
    .examples = "  vsend --to COPY SRC                         copy the tree with its history; later: update the copy\n"
                "  vsend --to host:docs SRC                    the same, on another machine\n"
                "  vsend --follow --to host:docs SRC           keep the copy up to date until interrupted\n"
                "  vsend SRC > FILE                            a stream, for vreceive\n"
                "  vsend --since \"$(vreceive --status COPY)\" SRC | vreceive COPY\n"
                "                                              the same as --to, by hand\n",
    .paths_min = 1,
    .paths_max = 1,
};

/* On standard error, without --to: standard output is the stream then. */
static void print_json(const struct wb_copy_result *result)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_time(builder, "since", result->since);
    wb_json_time(builder, "until", result->until);
    wb_json_int(builder, "bytes", (int64_t)result->bytes);
    wb_json_int(builder, "records", (int64_t)result->records);
    wb_json_int(builder, "objects", (int64_t)result->objects);
    wb_json_int(builder, "missing", (int64_t)result->missing);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

/* With --to: the state of the copy now. */
static void print_result(const struct wb_copy_result *result)
{
    g_autofree char *name = wb_text_printable(target.name);
    char until[WB_WHEN_TEXT_MAX], size[WB_TEXT_SIZE_MAX];

    wb_text_time(result->until, false, until);
    if (json)
        print_json(result);
    else if (result->records == 0 && result->objects == 0)
        printf("%s: already up to date (%s)\n", name, until);
    else
        printf("%s: sent %s; it has the history up to %s\n", name, wb_text_size(result->bytes, size), until);
    fflush(stdout);
}

/* Returns false if the reader has closed the stream; without changes there is no write that would fail. */
static bool pause_for_changes(void)
{
    struct pollfd out = {.fd = to_option ? target.fd : STDOUT_FILENO};

    return poll(&out, 1, PAUSE_MS) <= 0;
}

/* Returns 1 if there was nothing to send, or nothing could be sent yet. *ret: the totals. */
static int send_once(const char *given, unsigned flags, struct wb_copy_point *from, struct wb_copy_result *ret)
{
    static const struct wb_copy_listener listener = {.progress = wb_progress_stream};
    g_autofree char *tree = g_strdup(given);
    g_autofree char *store = store_option ? wb_path_absolute(store_option) : NULL;
    struct wb_error why = {""};
    int r;

    *ret = (struct wb_copy_result){0};
    /* A receiver on the same terminal shows its own. */
    if (!to_option || target.host)
        wb_progress_begin();
    /* Each time: the store may have been moved. */
    if (wb_tree_behind(given, &tree, &store) != 0)
        return -EINVAL;
    /* With --follow, the store may be moved to a place that is not known yet. */
    r = follow ? 0 : wb_confine_store(&tree, &store, WB_CONFINE_ATTRS, &why);
    if (r == 0)
        r = wb_copy_send(tree, store, from, flags, to_option ? target.fd : STDOUT_FILENO, &listener, ret,
                         &why);
    wb_progress_clear();
    if (r == -EAGAIN && flags & WB_COPY_CHANGES) {
        if (!waits)
            wb_cli_warn(given, "%s; trying again", why.text);
        waits = true;
        return 1;
    }
    waits = false;
    if (r < 0) {
        /* A receiver that ended has its own message. */
        if (!wb_cli_interrupted() && !(to_option && r == -EPIPE))
            wb_cli_fail(given, "%s", why.text);
        return r;
    }
    if (r > 0)
        return r;
    *from = (struct wb_copy_point){.since = ret->until};
    if (json && !to_option)
        print_json(ret);
    if (ret->missing > 0)
        wb_cli_warn(given, "%" G_GUINT64_FORMAT " deleted files are no longer in the store: the copy has their "
                    "history, but not their content", ret->missing);
    return 0;
}

static int parse_since(struct wb_copy_point *ret)
{
    *ret = (struct wb_copy_point){0};
    if (since_option && !*since_option)
        return wb_cli_usage("--since is empty: did `vreceive --status` fail?");
    if (since_option && wb_copy_point_parse(since_option, ret) < 0)
        return wb_cli_usage("--since: '%s' is invalid; use the output of `vreceive --status`, or 0", since_option);
    return 0;
}

static void send_stream(const char *given, struct wb_copy_point from)
{
    struct wb_copy_result result;
    int r = send_once(given, 0, &from, &result);

    while (r >= 0 && follow && !wb_cli_interrupted()) {
        if (!pause_for_changes()) {
            wb_cli_fail(given, "the reader closed the stream");
            break;
        }
        r = wb_cli_interrupted() ? 0 : send_once(given, WB_COPY_CHANGES, &from, &result);
    }
    /* Following ends with a signal. */
    wb_cli_stopped("%s", follow ? "" : "the stream is incomplete");
}

/* ---- to a copy ----------------------------------------------------------------------------------------------- */

static void print_plan(const struct wb_copy_point *from)
{
    g_autofree char *name = wb_text_printable(target.name);
    char since[WB_WHEN_TEXT_MAX];

    if (from->frames > 0)
        printf("%s: the rest of a stream that was cut off would be sent\n", name);
    else if (from->since == 0)
        printf("%s: is empty; the whole tree with its history would be sent\n", name);
    else
        printf("%s: has the history up to %s; later changes would be sent\n", name,
               wb_text_time(from->since, false, since));
}

/* One connection, until it ends. 0, WB_TARGET_UNREACHABLE or -errno; *ret_used: something was sent by it. */
static int connect_once(const char *given, bool *ret_used)
{
    struct wb_copy_point from;
    struct wb_copy_result result;
    int r = wb_send_target_status(&target, &from), ended;

    *ret_used = false;
    if (r == 0 && dry_run)
        print_plan(&from);
    if (r != 0 || dry_run)
        return r;
    r = wb_send_target_open(&target);
    if (r < 0)
        return r;
    r = send_once(given, 0, &from, &result);
    *ret_used = r == 0;
    while (r >= 0 && follow && !wb_cli_interrupted() && pause_for_changes()) {
        if (r == 0)
            print_result(&result);
        r = send_once(given, WB_COPY_CHANGES, &from, &result);
    }
    ended = wb_send_target_close(&target, r < 0 && r != -EPIPE);
    if (ended != 0)
        return ended;
    if (r == 0 && !wb_cli_interrupted())
        print_result(&result);
    return MIN(r, 0);
}

/* Returns false if it was interrupted meanwhile. */
static bool wait_to_connect(unsigned seconds)
{
    wb_cli_warn(target.name, "%s ended without a connection; trying again in %u s", target.remote_shell[0], seconds);
    for (unsigned i = 0; i < seconds && !wb_cli_interrupted(); i++)
        g_usleep(G_USEC_PER_SEC);
    return !wb_cli_interrupted();
}

static void send_to_copy(const char *given)
{
    g_autofree char *tree = g_strdup(given), *store = NULL;
    unsigned seconds = RETRY_SECONDS;
    struct stat st;
    bool used = false, connected = false;
    int r;

    /* Before anybody is asked for a password. */
    if (wb_tree_behind(given, &tree, &store) != 0)
        return;
    if (stat(tree, &st) < 0) {
        wb_cli_fail(given, "%s; SRC must be a directory you may read", wb_errno_text(errno));
        return;
    }
    do {
        r = connect_once(given, &used);
        connected |= used;
        if (used)
            seconds = RETRY_SECONDS;
        else
            seconds = MIN(2 * seconds, RETRY_SECONDS_MAX);
    } while (r == WB_TARGET_UNREACHABLE && follow && connected && !wb_cli_interrupted() && wait_to_connect(seconds));
    if (r == WB_TARGET_UNREACHABLE && !wb_cli_interrupted())
        wb_cli_fail(target.name, "%s cannot be reached: %s failed; see its message above", target.host,
                    target.remote_shell[0]);
    wb_cli_stopped("%s", follow ? "" : "the part that arrived is kept; the same command sends the rest");
}

static int check_options(struct wb_copy_point *ret)
{
    if (to_option && since_option)
        return wb_cli_usage("--to asks the copy for its state; use it without --since");
    if (!to_option && (ssh_option || dry_run))
        return wb_cli_usage("%s works with --to only", ssh_option ? "--ssh" : "--dry-run");
    if (to_option)
        return wb_send_target_parse(to_option, ssh_option, &target);
    return parse_since(ret);
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);
    struct wb_copy_point from;

    if (r >= 0)
        return r;
    if (json && to_option)
        wb_json_start(stdout);
    r = check_options(&from);
    if (r != 0)
        return r;
    if (!to_option && isatty(STDOUT_FILENO))
        return wb_cli_usage("standard output is a terminal; use --to, or send the stream to vreceive or to a file");
    if (to_option)
        send_to_copy(argv[1]);
    else
        send_stream(argv[1], from);
    wb_send_target_clear(&target);
    return wb_cli_end();
}
