/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "extract.h"
#include "publish.h"
#include "show.h"
#include "source.h"
#include "common/cli.h"
#include "client/copy/copy.h"
#include "client/fd.h"
#include "common/json.h"
#include "common/moment.h"
#include "common/mount.h"
#include "client/path.h"
#include "common/progress.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/*
 * vextract: takes a file or a directory out of the past, as it was then. It reads the past
 * through the mount, so it needs no more rights than `cp PATH@TIME` would.
 */

static struct wb_moment_options moment_options = {.change = WB_CHANGE_NONE};
static char *out_option;
static gboolean show, copy, force, dry_run, json, verbose;

static const GOptionEntry options[] = {
    {"time", 't', 0, G_OPTION_ARG_STRING, &moment_options.time, "Extract the state at TIME", "TIME"},
    {"change", 'c', 0, G_OPTION_ARG_INT, &moment_options.change,
     "Extract the state before the N-th most recent version (1 is the last; see vstat)", "N"},
    {"output", 'o', 0, G_OPTION_ARG_FILENAME, &out_option,
     "Write to OUT (OUT/: into that directory, -: standard output); default: NAME@TIME here", "OUT"},
    {"show", 0, 0, G_OPTION_ARG_NONE, &show,
     "Print a file's content, a directory's list or a link's target to standard output", NULL},
    {"copy", 0, 0, G_OPTION_ARG_NONE, &copy, "Copy it beside the present one, with the time in its name", NULL},
    {"force", 0, 0, G_OPTION_ARG_NONE, &force, "Replace OUT if it exists", NULL},
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&json),
    WB_CLI_VERBOSE(&verbose, "Print each name that is extracted"),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vextract",
    .arguments = "PATH",
    .summary = "Copies a past state of a file or a whole directory, with modes, owners, times, extended\n"
               "attributes and links. The present files are not changed.",
    .examples = "  vextract report.txt --time 14:03           creates report.txt.14:03 (@14:03 outside the mount)\n"
                "  vextract report.txt --change 1 -o -        the content before the last save\n"
                "  vextract src --time yesterday -o /tmp/src  the directory as it was at 00:00 yesterday\n"
                "  vextract src@2026-11-20/lib -o lib.old     the same, with the time in the path\n"
                "  vextract --show report.txt@yesterday       print its content\n"
                "  vextract --copy report.txt -t 14:03        creates report.txt.2026-11-20T14.03 beside it\n",
    .paths_min = 1,
    .paths_max = 1,
};

/* Whether `dir` lies in a mount, where NAME@TIME means the past and no file of that name can be made. */
static bool is_in_mount(const char *dir)
{
    _cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct wb_control_hello hello;

    return fd >= 0 && wb_request_hello(fd, &hello) == 0;
}

/* The name of the result where -o does not give one: NAME@TIME, or NAME.TIME in a mount. */
static char *default_name(const struct wb_place *place, const struct wb_moment *moment, const char *dir)
{
    const char *path = *place->path               ? place->path
                       : place->mount->private    ? place->mount->hello.source
                                                  : place->mount->point;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    if (!moment->label)
        return g_strdup(name);
    return is_in_mount(dir) ? g_strconcat(name, ".", moment->label, NULL)
                            : wb_moment_entry(place->mount, name, moment->label);
}

static char *output_path(const struct wb_place *place, const struct wb_moment *moment)
{
    bool into = out_option && g_str_has_suffix(out_option, "/");
    g_autofree char *name = NULL;

    if (out_option && !into)
        return g_strdup(out_option);
    name = default_name(place, moment, into ? out_option : ".");
    return into ? g_strconcat(out_option, name, NULL) : g_steal_pointer(&name);
}

static int to_stdout(const struct wb_place *place, int from_dir, const char *from_name)
{
    struct stat st;

    if (fstatat(from_dir, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return wb_cli_fail(place->given, "%s", wb_errno_text(errno));
    if (!S_ISREG(st.st_mode))
        return wb_cli_fail(place->given, "was %s then; only the content of a file can be written to standard output",
                           S_ISDIR(st.st_mode)   ? "a directory"
                           : S_ISLNK(st.st_mode) ? "a symbolic link"
                                                 : "not a regular file");
    return show_content(place, from_dir, from_name, dry_run);
}

static void report_json(const struct wb_place *place, const struct wb_moment *moment,
                        const struct extract *extract, const char *out)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", place->given);
    wb_json_when(builder, moment->when);
    wb_json_string(builder, "out", out);
    wb_json_int(builder, "files", (int64_t)extract->files);
    wb_json_int(builder, "directories", (int64_t)extract->directories);
    wb_json_int(builder, "bytes", (int64_t)extract->bytes);
    wb_json_int(builder, "failed", (int64_t)extract->failed);
    wb_json_bool(builder, "dry_run", dry_run);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

static void report(const struct wb_place *place, const struct wb_moment *moment,
                   const struct extract *extract, const char *out)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *to = wb_text_printable(out);
    g_autofree char *files = wb_text_count(extract->files, "file", "files");
    g_autofree char *directories = wb_text_count(extract->directories, "directory", "directories");
    char when[WB_WHEN_TEXT_MAX], bytes[WB_TEXT_SIZE_MAX];

    printf("%s%s as of %s -> %s (", dry_run ? "would extract " : "", name,
           wb_when_print(moment->when, 1, when), to);
    if (extract->directories > 0)
        printf("%s, %s, ", files, directories);
    printf("%s)\n", wb_text_size(extract->bytes, bytes));
}

static void to_file(const struct wb_place *place, const struct wb_moment *moment, int from_dir,
                    const char *from_name)
{
    struct extract extract = {.dry = dry_run, .verbose = verbose && !json};
    g_autofree char *out = output_path(place, moment);
    struct target target = {.dir_fd = -1};
    int r = target_open(&target, out, force);

    if (r == 0) {
        r = extract_run(&extract, from_dir, from_name, target.dir_fd, target.temporary, place->given);
        if (r == -EINTR)
            wb_cli_stopped("nothing was extracted");
        else if (r < 0)
            wb_cli_fail(place->given, "nothing extracted: %s", wb_errno_text(r));
        else if (!dry_run)
            r = target_publish(&target, extract.top_fd);
        if (r == 0 && !dry_run)
            extract_lock(&extract);
        target_discard(&target, extract.top_fd);
        extract_end(&extract);
        if (r == 0 && extract.failed > 0)
            wb_cli_fail(out, "incomplete: %" G_GUINT64_FORMAT " of its entries could not be extracted",
                        extract.failed);
    }
    target_close(&target);
    if (r == 0 && json)
        report_json(place, moment, &extract, out);
    else if (r == 0)
        report(place, moment, &extract, out);
}

static int run(struct source *source, const char *path)
{
    const struct wb_place *place;
    _cleanup_fd_ int from_dir = -1;
    const char *from_name;
    int r = source_find(source, path, &moment_options, show && !copy);

    if (r != 0)
        return r;
    place = source->place;
    if (copy) {
        out_option = source_beside(source);
        if (!out_option)
            return WB_EXIT_FAILED;
    }
    from_dir = wb_fd_open_parent(place->mount->root_fd, source->moment.path, &from_name);
    if (from_dir < 0)
        return wb_cli_fail(place->given, "%s", wb_errno_text(from_dir));
    if (show && !copy)
        return show_state(place, source->moment.when, from_dir, from_name);
    if (out_option && strcmp(out_option, "-") == 0)
        return to_stdout(place, from_dir, from_name);
    to_file(place, &source->moment, from_dir, from_name);
    return WB_EXIT_OK;
}

static int check_options(void)
{
    if (wb_moment_check(&moment_options) != 0)
        return WB_EXIT_USAGE;
    if (out_option && !*out_option)
        return wb_cli_usage("--output: OUT is empty");
    if (json && out_option && strcmp(out_option, "-") == 0)
        return wb_cli_usage("--json and '-o -' exclude each other: both write to standard output");
    if (out_option && (show || copy))
        return wb_cli_usage("--output excludes --show and --copy");
    if (copy && force)
        return wb_cli_usage("--copy and --force exclude each other: --copy never overwrites");
    if (show && !copy && (json || force || dry_run))
        return wb_cli_usage("--show excludes --json, --force and --dry-run");
    return -1;
}

int main(int argc, char **argv)
{
    struct source source = {NULL};
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0)
        r = check_options();
    if (r >= 0)
        return r;
    r = run(&source, argv[1]);
    source_clear(&source);
    return r != WB_EXIT_OK && !wb_cli_interrupted() ? r : wb_cli_end();
}
