/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vreceive: makes a copy of a tree and its history from what vsend wrote, and brings it up to date. */
#include "common/cli.h"
#include "common/json.h"
#include "common/progress.h"
#include "common/text.h"
#include "wayback/copy.h"
#include <errno.h>
#include <unistd.h>

static gboolean json, status;

static const GOptionEntry options[] = {
    {"status", 0, 0, G_OPTION_ARG_NONE, &status,
     "Print the state of DIR for vsend --since (0: empty; with +: part of a stream); completes interrupted work",
     NULL},
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vreceive",
    .plain = true,
    .timeless = true,
    .path_word = "DIR",
    .arguments = "DIR",
    .summary = "Reads a stream of vsend from standard input, and creates a copy of that tree with its history in DIR, "
               "or updates the copy in DIR. Changes nothing before it has read and verified the whole stream.",
    .examples = "  vsend SRC | vreceive COPY                   copy the tree with its history\n"
                "  vreceive --status COPY                      print the state of the copy for vsend --since\n"
                "  vsend --since \"$(vreceive --status COPY)\" SRC | vreceive COPY\n"
                "                                              send the changes since then\n"
                "  wayback -o at=yesterday COPY MNT            mount a past state of the copy\n",
    .paths_min = 1,
    .paths_max = 1,
};

static void print_json(const struct wb_copy_result *result)
{
    char text[WB_COPY_POINT_MAX];
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_time(builder, "since", result->since);
    wb_json_time(builder, "until", result->until);
    if (status) {
        wb_json_string(builder, "point", wb_copy_point_print(&result->point, text));
    } else {
        wb_json_int(builder, "bytes", (int64_t)result->bytes);
        wb_json_int(builder, "records", (int64_t)result->records);
        wb_json_int(builder, "objects", (int64_t)result->objects);
        wb_json_int(builder, "refused", (int64_t)result->refused);
    }
    json_builder_end_object(builder);
    wb_json_document(builder);
    fflush(stdout);
}

static void print_status(const char *dir, const char *path)
{
    struct wb_copy_result result = {0};
    struct wb_error why = {""};
    char text[WB_COPY_POINT_MAX];

    if (wb_copy_status(path, &result, &why) < 0)
        wb_cli_fail(dir, "%s", why.text);
    else if (json)
        print_json(&result);
    else
        puts(wb_copy_point_print(&result.point, text));
}

static void receive(const char *dir, const char *path)
{
    static const struct wb_copy_listener listener = {.progress = wb_progress_stream};
    bool any = false;
    int r = 0;

    while (r == 0) {
        struct wb_copy_result result = {0};
        struct wb_error why = {""};

        wb_progress_begin();
        r = wb_copy_receive(path, STDIN_FILENO, &listener, &result, &why);
        wb_progress_clear();
        if (r < 0 && !wb_cli_interrupted())
            wb_cli_fail(dir, "%s", why.text);
        if (r == 0 && json)
            print_json(&result);
        if (r == 0 && result.refused > 0)
            wb_cli_warn(dir, "%" G_GUINT64_FORMAT " attributes (owners, extended attributes) could not be set here",
                        result.refused);
        any |= r == 0;
    }
    if (r > 0 && !any && !wb_cli_interrupted())
        wb_cli_fail(dir, "standard input was empty; see the messages of vsend");
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);
    struct wb_copy_confinement confinement;
    struct wb_error why = {""};

    if (r >= 0)
        return r;
    if (!status && isatty(STDIN_FILENO))
        return wb_cli_usage("standard input is a terminal; it must be the stream of vsend");
    r = wb_copy_confine(argv[1], !status, &confinement, &why);
    /* Nothing is there, so nothing is read. */
    if (r == -ENOENT && status)
        r = 0;
    if (r < 0)
        wb_cli_fail(argv[1], "%s", why.text);
    else if (status)
        print_status(argv[1], confinement.path);
    else
        receive(argv[1], confinement.path);
    wb_copy_confine_end(&confinement);
    wb_cli_stopped("run 'vreceive --status' for the point at which vsend has to continue");
    return wb_cli_end();
}
