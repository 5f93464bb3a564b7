/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vsend: a tree with its whole history, or what was changed since some moment, as one stream for vreceive.
 */
#include "common/cli.h"
#include "common/json.h"
#include "common/mount.h"
#include "client/path.h"
#include "common/progress.h"
#include "common/text.h"
#include "wayback/confine.h"
#include "wayback/copy.h"
#include <errno.h>
#include <poll.h>
#include <unistd.h>

/* How long --follow waits before it looks again: the changes it ships are less than two seconds old. */
#define PAUSE_MS 500

static char *store_option, *since_option;
static gboolean json, follow;
static bool waits; /* a warning with the reason for the delay was printed */

static const GOptionEntry options[] = {
    {"since", 0, 0, G_OPTION_ARG_STRING, &since_option,
     "Send only later changes, or the rest of a stream: the output of `vreceive --status DIR`; default 0: everything",
     "TIME"},
    {"follow", 'f', 0, G_OPTION_ARG_NONE, &follow, "Continue with new changes until interrupted", NULL},
    {"store", 0, 0, G_OPTION_ARG_FILENAME, &store_option, "The store, if it is not SRC/.wayback", "DIR"},
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
    .summary = "Writes a tree with its whole history, or the changes since it was sent last, to standard output, "
               "for vreceive at another place. SRC is the tree or its mount point; it may be changed meanwhile.",
    .examples = "  vsend SRC | vreceive COPY                   copy the tree with its history\n"
                "  vsend SRC | ssh host vreceive COPY          the same, to another machine\n"
                "  vsend --since \"$(vreceive --status COPY)\" SRC | vreceive COPY\n"
                "                                              send new changes, or the rest of a stream\n"
                "  vsend --follow --since \"$(ssh host vreceive --status COPY)\" SRC | ssh host vreceive COPY\n"
                "                                              keep the copy up to date until interrupted\n",
    .paths_min = 1,
    .paths_max = 1,
};

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

/* Returns false if the reader has closed the stream; without changes there is no write that would fail. */
static bool pause_for_changes(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};

    return poll(&out, 1, PAUSE_MS) <= 0;
}

/* Returns 1 if there was nothing to send, or nothing could be sent yet. */
static int send_once(const char *given, unsigned flags, struct wb_copy_point *from)
{
    static const struct wb_copy_listener listener = {.progress = wb_progress_stream};
    g_autofree char *tree = g_strdup(given);
    g_autofree char *store = store_option ? wb_path_absolute(store_option) : NULL;
    struct wb_copy_result result = {0};
    struct wb_error why = {""};
    int r;

    wb_progress_begin();
    /* Each time: the store may have been moved. */
    if (wb_tree_behind(given, &tree, &store) != 0)
        return -EINVAL;
    /* With --follow, the store may be moved to a place that is not known yet. */
    r = follow ? 0 : wb_confine_store(&tree, &store, WB_CONFINE_ATTRS, &why);
    if (r == 0)
        r = wb_copy_send(tree, store, from, flags, STDOUT_FILENO, &listener, &result, &why);
    wb_progress_clear();
    if (r == -EAGAIN && flags & WB_COPY_CHANGES) {
        if (!waits)
            wb_cli_warn(given, "%s; trying again", why.text);
        waits = true;
        return 1;
    }
    waits = false;
    if (r < 0) {
        if (!wb_cli_interrupted())
            wb_cli_fail(given, "%s", why.text);
        return r;
    }
    if (r > 0)
        return r;
    *from = (struct wb_copy_point){.since = result.until};
    if (json)
        print_json(&result);
    if (result.missing > 0)
        wb_cli_warn(given, "%" G_GUINT64_FORMAT " deleted files are no longer in the store: the copy has their "
                    "history, but not their content", result.missing);
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

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);
    struct wb_copy_point from;

    if (r >= 0)
        return r;
    r = parse_since(&from);
    if (r != 0)
        return r;
    if (isatty(STDOUT_FILENO))
        return wb_cli_usage("standard output is a terminal; send the stream to vreceive or to a file");
    r = send_once(argv[1], 0, &from);
    while (r >= 0 && follow && !wb_cli_interrupted()) {
        if (!pause_for_changes()) {
            wb_cli_fail(argv[1], "the reader closed the stream");
            break;
        }
        r = wb_cli_interrupted() ? 0 : send_once(argv[1], WB_COPY_CHANGES, &from);
    }
    /* Following ends with a signal. */
    wb_cli_stopped("%s", follow ? "" : "the stream is incomplete");
    return wb_cli_end();
}
