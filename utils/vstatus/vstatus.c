/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/path.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/mount.h"
#include "common/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/*
 * vstatus: is a place recorded, since when, and by which mount? It only looks: no tree is mounted for it, and no daemon
 * is asked for more than HELLO.
 */

static gboolean all, json;

static const GOptionEntry options[] = {
    {"all", 'a', 0, G_OPTION_ARG_NONE, &all, "List all Wayback mounts of this machine", NULL},
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vstatus",
    .arguments = "[PATH...]",
    .summary = "Shows whether PATH (the current directory) is recorded, since when, by which mount and process,\n"
               "and where the history is; or how to record it.",
    .examples = "  vstatus                 is this directory recorded?\n"
                "  vstatus ~/work /srv     are these?\n"
                "  vstatus --all           all mounts of this machine\n"
                "  vstatus --json          the same for programs\n",
    .exit_text = "0 recorded, 1 not recorded or something failed, 2 wrong usage, 130 stopped by Ctrl-C",
    .plain = true,
    .timeless = true,
};

/* What is known of one PATH. */
struct status {
    char *path;             /* absolute */
    struct wb_mount *mount; /* NULL: no mount shows it */
    bool is_source;         /* PATH is in the tree behind the mount, and not below the mount point */
    bool is_below;          /* PATH is relative, and leads from the current directory past the mount */
    char *tree;             /* that has a store but no mount; or NULL */
};

static void status_clear(struct status *status)
{
    g_free(status->path);
    wb_mount_free(status->mount);
    g_free(status->tree);
}

/* ---- finding out ----------------------------------------------------------------------------------------- */

static bool is_present(const struct wb_mount *mount)
{
    return mount->hello.moment == 0;
}

static bool is_recorded(const struct status *status)
{
    const struct wb_mount *mount = status->mount;

    return mount && mount->hello.history && !mount->hello.read_only && is_present(mount) && !status->is_source &&
           !status->is_below;
}

/* Whether `given` leads past the mount in which the absolute `path` is, because the current directory is below it. */
static bool leads_past(const char *given, const char *path)
{
    g_autofree char *directory = NULL;
    struct stat here, there;

    if (given[0] == '/')
        return false;
    if (lstat(given, &here) == 0 && lstat(path, &there) == 0)
        return here.st_dev != there.st_dev;
    directory = g_get_current_dir();
    return wb_path_below(path, directory, NULL) && wb_stands_below_mount();
}

/* 0 or -errno: the mount there does not answer. */
static int look(const GPtrArray *list, const char *given, struct status *status)
{
    const struct wb_listed *listed = wb_listed_of(list, status->path);
    const char *rest;
    int error = 0;

    if (listed && wb_listed_is_wayback(listed)) {
        status->mount = wb_mount_open(listed, status->path, &error);
        if (!status->mount)
            return -error;
        status->is_below = leads_past(given, status->path);
        return 0;
    }
    status->mount = wb_mount_of_source(list, status->path, &rest);
    status->is_source = status->mount != NULL;
    if (!status->mount)
        status->tree = wb_tree_above(status->path);
    return 0;
}

/* Where the history is, as far as the caller may know; g_free. */
static char *place_of_store(const struct wb_control_hello *hello)
{
    g_autofree char *link = NULL;

    if (hello->pid == 0)
        return NULL;
    if (hello->store_fd < 0)
        return g_build_filename(hello->source, ".wayback", NULL);
    link = g_strdup_printf("/proc/%u/fd/%d", hello->pid, hello->store_fd);
    return g_file_read_link(link, NULL);
}

/* ---- showing it ------------------------------------------------------------------------------------------ */

static void print_line(const char *label, const char *text)
{
    g_autofree char *shown = wb_text_printable(text);

    printf("  %-9s%s\n", label, shown);
}

static void print_mount(const struct status *status)
{
    const struct wb_control_hello *hello = &status->mount->hello;
    g_autofree char *store = place_of_store(hello);
    g_autofree char *by = hello->pid ? g_strdup_printf(", by process %u", hello->pid) : g_strdup("");
    g_autofree char *mount = NULL, *history = NULL;
    char when[WB_WHEN_TEXT_MAX], age[WB_TEXT_AGE_MAX];
    bool in_place = strcmp(status->mount->point, hello->source) == 0;

    mount = g_strdup_printf("%s%s%s", status->mount->point, in_place ? ", in place" : "", by);
    print_line("mount", mount);
    if (*hello->source && !in_place)
        print_line("tree", hello->source);
    if (hello->created > 0) {
        history = g_strdup_printf("since %s (%s)%s%s", wb_when_print(hello->created, 0, when),
                                  wb_text_age(wb_mount_now(status->mount) - hello->created, age), store ? ", in " : "",
                                  store ? store : "");
        print_line("history", history);
    }
    if (hello->io_uring)
        print_line("kernel", "FUSE over io_uring");
}

/* The directory at or above `path` that can be mounted; g_free. NULL: there is none but the root. */
static char *directory_of(const char *path)
{
    g_autofree char *at = g_strdup(path);
    struct stat st;

    while (*at && (stat(at, &st) < 0 || !S_ISDIR(st.st_mode)))
        *strrchr(at, '/') = '\0';
    return strspn(at, "/") < strlen(at) ? g_steal_pointer(&at) : NULL;
}

static void print_advice(const struct status *status)
{
    g_autofree char *quoted = NULL, *tree = NULL;

    if (status->is_below) {
        print_line("note", "this shell stands below the mount: run cd . to enter it");
    } else if (status->is_source) {
        quoted = wb_text_shell(status->mount->point);
        printf("  %-9schanges here go past the mount: work in %s\n", "note", quoted);
    } else if (!status->mount) {
        tree = status->tree ? g_strdup(status->tree) : directory_of(status->path);
        if (!tree)
            return;
        quoted = wb_text_shell(tree);
        printf("  %-9swayback enable %s; or until it is unmounted: wayback mount %s\n", "record", quoted, quoted);
    }
}

static const char *verdict(const struct status *status)
{
    const struct wb_mount *mount = status->mount;

    if (is_recorded(status))
        return "is recorded";
    if (!mount)
        return status->tree ? "is not recorded now; it has a history" : "is not recorded";
    if (!is_present(mount))
        return "is a view of the past";
    if (status->is_source || status->is_below)
        return "is behind its mount, and not recorded";
    return mount->hello.history ? "is mounted read-only" : "is mounted without history";
}

static void print_text(const struct status *status)
{
    g_autofree char *shown = wb_text_printable(status->path);

    printf("%s %s\n", shown, verdict(status));
    if (status->mount)
        print_mount(status);
    else if (status->tree)
        print_line("tree", status->tree);
    print_advice(status);
}

static void print_json(const struct status *status)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    const struct wb_mount *mount = status->mount;
    g_autofree char *store = mount ? place_of_store(&mount->hello) : NULL;

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", status->path);
    wb_json_bool(builder, "recorded", is_recorded(status));
    wb_json_string(builder, "status", verdict(status));
    if (mount) {
        wb_json_string(builder, "mount", mount->point);
        if (*mount->hello.source)
            wb_json_string(builder, "tree", mount->hello.source);
        if (mount->hello.pid)
            wb_json_int(builder, "pid", mount->hello.pid);
        if (store)
            wb_json_string(builder, "store", store);
        if (mount->hello.created > 0)
            wb_json_time(builder, "since", mount->hello.created);
        if (mount->hello.moment > 0)
            wb_json_time(builder, "at", mount->hello.moment);
        wb_json_bool(builder, "below_mount", status->is_below);
        wb_json_string(builder, "transport", mount->hello.io_uring ? "io_uring" : "/dev/fuse");
    } else if (status->tree) {
        wb_json_string(builder, "tree", status->tree);
    }
    json_builder_end_object(builder);
    wb_json_document(builder);
}

/* ---- the paths ------------------------------------------------------------------------------------------- */

/* Whether it is recorded. */
static bool show(const GPtrArray *list, const char *given)
{
    struct status status = {.path = wb_path_absolute(given)};
    bool recorded;
    int r;

    if (!status.path) {
        wb_cli_fail(given, "%s", wb_path_error_text(errno));
        wb_json_separate();
        return false;
    }
    r = look(list, given, &status);
    if (r < 0) {
        wb_cli_fail(given, "%s", r == -ENOTCONN ? "the mount does not answer: its daemon has ended; unmount it, and "
                                                  "mount the tree again"
                                                : wb_errno_text(-r));
        status_clear(&status);
        wb_json_separate();
        return false;
    }
    recorded = is_recorded(&status);
    if (json)
        print_json(&status);
    else
        print_text(&status);
    status_clear(&status);
    return recorded;
}

int main(int argc, char **argv)
{
    g_autoptr(GPtrArray) list = NULL;
    int r = wb_cli_begin(&cli, options, &argc, &argv);
    bool recorded = true;
    unsigned count = 0;

    if (r >= 0)
        return r;
    if (all && argc > 1)
        return wb_cli_usage("--all and PATH exclude each other");
    list = wb_listed_mounts();
    for (guint i = 0; all && i < list->len; i++) {
        const struct wb_listed *listed = list->pdata[i];

        if (!wb_listed_is_wayback(listed))
            continue;
        count++;
        if (wb_listed_of(list, listed->point) != listed) {
            wb_cli_warn(listed->point, "a mount of this place is covered by another one");
            continue;
        }
        show(list, listed->point);
    }
    for (int i = 1; i < argc; i++)
        recorded = show(list, argv[i]) && recorded;
    if (!all && argc < 2)
        recorded = show(list, ".");
    if (all && count == 0 && !json)
        printf("no Wayback mount\n");
    r = wb_cli_end();
    return r == WB_EXIT_OK && !recorded ? WB_EXIT_FAILED : r;
}
