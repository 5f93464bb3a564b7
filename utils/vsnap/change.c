/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vsnap create, rename, delete. */
#include "vsnap.h"

#include "common/json.h"
#include "common/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "wayback/at_name.h"

/* 0, or WB_EXIT_USAGE after saying which rule a name breaks. */
static int check_name(const char *name)
{
    struct wb_error why;
    g_autofree char *shown = NULL;

    if (wb_snapshot_name_check(name, &why) == 0)
        return 0;
    shown = wb_text_printable(name);
    return wb_cli_usage("'%s': %s", shown, why.text);
}

/* v1, v1.2.3, 1.2, 2.0.0-rc.1: what programs write behind the '@' of a package. */
static bool is_version(const char *name)
{
    const char *at = name + (*name == 'v' || *name == 'V');
    unsigned parts = 0;

    for (; g_ascii_isdigit(*at); parts++) {
        while (g_ascii_isdigit(*at))
            at++;
        at += *at == '.' && g_ascii_isdigit(at[1]);
    }
    return parts > (*name == 'v' || *name == 'V' ? 0u : 1u) && (!*at || strchr("-+.", *at));
}

/* Directories of Go's module proxies, tags and common scopes of npm. */
static bool is_word_of_packages(const char *name)
{
    static const char *const words[] = {
        "v", "latest", "next", "beta", "canary", "types", "babel", "angular", "vue", "nestjs", "aws-sdk", "azure",
        "mui", "emotion", "eslint", "jest", "rollup", "storybook", "octokit", "swc", "vitejs", "google-cloud",
        "firebase", NULL,
    };

    return g_strv_contains(words, name);
}

/* Such names are allowed: no real entry is hidden by one. */
static void warn_of_name(const struct wb_place *place, const char *name)
{
    if (place->mount->at_sign != WB_AT_SIGN)
        return;
    if (is_version(name) || is_word_of_packages(name))
        wb_cli_warn(NULL, "programs use '%s' after an '@' in names (sdk@v1.2.3, @types/node, @v/list); if such a file "
                          "does not exist, they find this read-only snapshot instead; use 'vsnap rename' to change it",
                    name);
}

/* ---- create ---------------------------------------------------------------------------------- */

/* Names from the local time until one is free: to the minute, to the second, with a number. */
static char *next_name(unsigned attempt)
{
    time_t now = time(NULL);
    struct tm local;
    char text[64];

    localtime_r(&now, &local);
    strftime(text, sizeof(text), attempt == 0 ? "snap-%Y-%m-%d_%H%M" : "snap-%Y-%m-%d_%H%M%S", &local);
    return attempt < 2 ? g_strdup(text) : g_strdup_printf("%s-%u", text, attempt);
}

static int create(const struct wb_place *place, const char *name, const char *text,
                  struct wb_control_snapshot **ret)
{
    int r = -EEXIST;

    if (name)
        return wb_request_snapshot_create(place->mount->root_fd, place->path, name, text, ret);
    for (unsigned attempt = 0; r == -EEXIST && attempt < 1000; attempt++) {
        g_autofree char *made = next_name(attempt);

        r = wb_request_snapshot_create(place->mount->root_fd, place->path, made, text, ret);
    }
    return r;
}

static int fail_to_create(const struct wb_place *place, const char *name, int error)
{
    switch (-error) {
    case ENOENT:
        return wb_cli_fail(place->given, "no such directory; a snapshot needs an existing directory");
    case ENOTDIR:
        return wb_cli_fail(place->given, "is not a directory; a snapshot covers a directory and everything below it");
    case EPERM:
        return wb_cli_fail(place->given, "not permitted; only its owner, root and the user who mounted may create "
                                         "snapshots of it");
    case EROFS:
        return wb_cli_fail(place->given, "is a past state; a snapshot can be created of the present state only");
    case EACCES:
    case ENAMETOOLONG:
        return wb_cli_fail(place->given, "%s", wb_errno_text(error));
    default:
        return vsnap_fail(place, name ? name : "snapshot", error);
    }
}

static int create_at(const char *path, const char *name, const char *text, bool json)
{
    _cleanup_place_ struct wb_place *place = vsnap_place(path, WB_MOUNT_WRITE);
    g_autofree struct wb_control_snapshot *snapshot = NULL;
    char epoch[WB_WHEN_TEXT_MAX];
    int r;

    if (!place)
        return WB_EXIT_FAILED;
    if (name)
        warn_of_name(place, name);
    r = create(place, name, text, &snapshot);
    if (r < 0)
        return fail_to_create(place, name, r);
    wb_when_print_epoch(snapshot->when, epoch);
    if (json) {
        g_autoptr(JsonBuilder) builder = json_builder_new();

        json_builder_begin_object(builder);
        wb_json_string(builder, "name", wb_snapshot_name(snapshot));
        wb_json_when(builder, snapshot->when);
        wb_json_string(builder, "path", wb_snapshot_path(snapshot));
        json_builder_end_object(builder);
        wb_json_document(builder);
    } else {
        printf("%s\t%s\n", wb_snapshot_name(snapshot), epoch);
    }
    return wb_cli_end();
}

int vsnap_create(int argc, char **argv)
{
    static char *text;
    static gboolean json;
    static const GOptionEntry options[] = {
        {"message", 'm', 0, G_OPTION_ARG_STRING, &text, "A description of the snapshot", "TEXT"},
        WB_CLI_JSON(&json),
        WB_CLI_END,
    };
    static const struct wb_cli cli = {
        .name = "vsnap",
        .verb = "create",
        .arguments = "[NAME] [PATH]",
        .summary = "Creates a snapshot of a directory with everything below it: PATH, or the current\n"
                   "directory. Waits for changes in progress, brings everything written so far to stable\n"
                   "storage, and prints the name and the time; NAME@TIME accepts both. The cost does not\n"
                   "depend on the size of the tree. The default NAME contains the local time.",
        .examples = "  vsnap create before-upgrade                 the current directory\n"
                    "  vsnap create before-upgrade -m 'to 2.0' /   everything mounted at /\n"
                    "  vsnap create ./src                          a PATH alone has a slash\n"
                    "  when=$(vsnap create | cut -f2)              for scripts\n",
    };
    const char *name = NULL, *path = NULL;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (argc > 3)
        return wb_cli_usage("at most one NAME and one PATH ('%s' is extra)", argv[3]);
    if (argc == 2 && vsnap_is_path(argv[1]))
        path = argv[1];
    else if (argc >= 2)
        name = argv[1];
    if (argc == 3)
        path = argv[2];
    if (name && check_name(name) != 0)
        return WB_EXIT_USAGE;
    if (text && strlen(text) > WB_SNAPSHOT_TEXT_BYTES)
        return wb_cli_usage("--message: %zu bytes are too long; the limit is %d", strlen(text), WB_SNAPSHOT_TEXT_BYTES);
    return create_at(path, name, text ? text : "", json);
}

/* ---- rename ---------------------------------------------------------------------------------- */

static void report_rename(const char *from, const char *to)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "name", to);
    wb_json_string(builder, "from", from);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

int vsnap_rename(int argc, char **argv)
{
    static char *directory;
    static gboolean json;
    static const GOptionEntry options[] = {VSNAP_DIRECTORY(&directory), WB_CLI_JSON(&json), WB_CLI_END};
    static const struct wb_cli cli = {
        .name = "vsnap",
        .verb = "rename",
        .arguments = "OLD NEW [PATH]",
        .summary = "Gives a snapshot another name; its time and everything else does not change.",
        .examples = "  vsnap rename snap-2026-11-21_1403 before-upgrade\n",
    };
    struct wb_place *place;
    const char *path;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    path = vsnap_directory(directory, &argc, argv);
    if (argc != 3)
        return wb_cli_usage("OLD or NEW is missing");
    if (check_name(argv[2]) != 0)
        return WB_EXIT_USAGE;
    place = vsnap_place(path, WB_MOUNT_WRITE);
    if (!place)
        return WB_EXIT_FAILED;
    r = wb_request_snapshot_rename(place->mount->root_fd, argv[1], argv[2]);
    if (r < 0)
        vsnap_fail(place, r == -EEXIST ? argv[2] : argv[1], r);
    else
        warn_of_name(place, argv[2]);
    if (r >= 0 && json)
        report_rename(argv[1], argv[2]);
    wb_place_free(place);
    return wb_cli_end();
}

/* ---- delete ---------------------------------------------------------------------------------- */

/* With -n: whether it could be done. 0 or -errno. */
static int look(const struct wb_place *place, const char *name, bool *ret_may, int64_t *ret_when)
{
    g_autoptr(GPtrArray) found = NULL;
    const struct wb_control_snapshot *snapshot;
    int r = wb_request_snapshot_list(place->mount->root_fd, "", name, &found);

    if (r < 0)
        return r;
    if (found->len == 0)
        return -ENOENT;
    snapshot = wb_snapshot_to_change(found);
    *ret_may = snapshot->flags & WB_CONTROL_SNAPSHOT_MAY;
    *ret_when = snapshot->when;
    return 0;
}

static void report_delete(const char *name, int64_t when, bool dry_run)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "name", name);
    wb_json_when(builder, when);
    wb_json_bool(builder, "dry_run", dry_run);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

/* Whether it was done. */
static bool delete_one(const struct wb_place *place, const char *name, bool dry_run, bool json)
{
    g_autofree char *shown = wb_text_printable(name);
    char epoch[WB_WHEN_TEXT_MAX];
    int64_t when = 0;
    bool may = false;
    int r = look(place, name, &may, &when);

    if (r == 0 && dry_run && !may)
        r = -EPERM;
    /* Where it may not, the daemon says why. */
    if (r == 0 && !dry_run)
        r = wb_request_snapshot_delete(place->mount->root_fd, name);
    if (r < 0) {
        vsnap_fail(place, name, r);
        return false;
    }
    if (json) {
        report_delete(name, when, dry_run);
        return true;
    }
    printf("%s: %s; its time %s %s\n", shown, dry_run ? "would be deleted" : "deleted",
           dry_run ? "is" : "can still be used:", wb_when_print_epoch(when, epoch));
    return true;
}

int vsnap_delete(int argc, char **argv)
{
    static char *directory;
    static gboolean dry_run, json;
    static const GOptionEntry options[] = {VSNAP_DIRECTORY(&directory), WB_CLI_DRY_RUN(&dry_run), WB_CLI_JSON(&json),
                                           WB_CLI_END};
    static const struct wb_cli cli = {
        .name = "vsnap",
        .verb = "delete",
        .arguments = "NAME... [PATH]",
        .summary = "Deletes snapshots. This deletes no history: the state is still available by its time.",
        .examples = "  vsnap delete before-upgrade       delete one snapshot\n"
                    "  vsnap delete -n test-1 test-2     only show what would be deleted\n",
    };
    struct wb_place *place;
    unsigned done = 0;
    const char *path;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    path = vsnap_directory(directory, &argc, argv);
    if (argc < 2)
        return wb_cli_usage("NAME is missing");
    place = vsnap_place(path, dry_run ? WB_MOUNT_READ : WB_MOUNT_WRITE);
    if (!place)
        return WB_EXIT_FAILED;
    for (int i = 1; i < argc && !wb_cli_interrupted(); i++) {
        wb_json_separate();
        done += delete_one(place, argv[i], dry_run, json);
    }
    if (dry_run)
        wb_cli_stopped("nothing was changed");
    else
        wb_cli_stopped("%u of %d snapshots deleted", done, argc - 1);
    wb_place_free(place);
    return wb_cli_end();
}
