/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vdump: any log of a store as text, one record a line. Reads files only: it needs no mount and
 * no lock, and works on a store that nothing else can open any more.
 */
#include "common/cli.h"
#include "client/control.h"
#include "client/fd.h"
#include "common/json.h"
#include "wayback/confine.h"
#include "wayback/dump.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define STORE_NAME ".wayback"
#define ID_LENGTH 33

static char *store_option;
static gboolean json, verify;

static const GOptionEntry options[] = {
    {"store", 0, 0, G_OPTION_ARG_FILENAME, &store_option, "The store in which to look for IDs", "DIR"},
    {"verify", 0, 0, G_OPTION_ARG_NONE, &verify, "Check the recorded content as well", NULL},
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vdump",
    .plain = true,
    .timeless = true,
    .path_word = "LOG",
    .arguments = "LOG...",
    .summary = "Prints logs of a Wayback store as text, one record per line; damaged ones are marked.",
    .examples = "  vdump SRC/.wayback/actors                    the users and processes that made changes\n"
                "  vdump 00000000000a1b2c-18a3f0c2d4e5f607      the logs of one object\n"
                "  vdump --verify SRC/.wayback/objects/2c/*.undo   check the content of logs\n",
    .paths_min = 1,
};

/* "00000000000a1b2c-18a3f0c2d4e5f607", perhaps followed by ".undo". */
static bool is_id(const char *text)
{
    for (int i = 0; i < ID_LENGTH; i++) {
        if (i == 16 ? text[i] != '-' : !strchr("0123456789abcdef", text[i]) || !text[i])
            return false;
    }
    return text[ID_LENGTH] == '\0' || text[ID_LENGTH] == '.';
}

static bool is_store(const char *path)
{
    g_autofree char *header = g_build_filename(path, "header", NULL);

    return g_file_test(header, G_FILE_TEST_IS_REGULAR);
}

/* The store of the source tree we stand in, or whose mount we stand in; NULL if there is none. */
static char *find_store(void)
{
    _cleanup_fd_ int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree char *at = g_get_current_dir();
    g_autofree struct wb_control_hello *hello = g_new0(struct wb_control_hello, 1);
    char *store;

    for (;;) {
        char *parent;

        store = g_build_filename(at, STORE_NAME, NULL);
        if (is_store(store))
            return store;
        g_free(store);
        if (strcmp(at, "/") == 0)
            break;
        parent = g_path_get_dirname(at);
        g_free(at);
        at = parent;
    }
    if (fd < 0 || wb_request_hello(fd, hello) < 0 || !*hello->source)
        return NULL;
    store = g_build_filename(hello->source, STORE_NAME, NULL);
    if (is_store(store))
        return store;
    g_free(store);
    return NULL;
}

/*
 * A path that a confined process can follow: through a descriptor of its own where it leads through that of another
 * process. Only so are the logs of a tree reached that its mount covers.
 */
static char *keep_path(const char *log)
{
    g_autofree char *dir = g_path_get_dirname(log);
    g_autofree char *name = g_path_get_basename(log);
    char link[WB_FD_PATH_MAX];
    int fd;

    if (!g_str_has_prefix(log, "/proc/") || g_str_has_prefix(log, "/proc/self/") ||
        !g_file_test(log, G_FILE_TEST_EXISTS))
        return g_strdup(log);
    fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC); /* open until the process ends */
    return fd < 0 ? g_strdup(log) : g_build_filename(wb_fd_proc_path(fd, link), name, NULL);
}

/* The logs that LOG names. Empty after an error line. */
static GPtrArray *find_logs(const char *given)
{
    static const char *const suffixes[] = {".cat", ".undo"};
    GPtrArray *logs = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *store = NULL;

    if (g_file_test(given, G_FILE_TEST_EXISTS) || !is_id(given)) {
        g_ptr_array_add(logs, g_strdup(given));
        return logs;
    }
    store = store_option ? g_strdup(store_option) : find_store();
    if (!store) {
        wb_cli_fail(given, "the current directory is in no tree with a store to look for this ID; use --store");
        return logs;
    }
    for (guint i = 0; i < G_N_ELEMENTS(suffixes); i++) {
        g_autofree char *path = g_strdup_printf("%s/objects/%.2s/%s%s", store, given + 14, given,
                                                given[ID_LENGTH] ? "" : suffixes[i]);

        if (g_file_test(path, G_FILE_TEST_EXISTS))
            g_ptr_array_add(logs, g_steal_pointer(&path));
        if (given[ID_LENGTH])
            break;
    }
    if (logs->len == 0)
        wb_cli_fail(given, "the store %s has no log of it (it never changed)", store);
    return logs;
}

/*
 * What has to be readable for a log: a daemon may replace it before it is read, so in a store that is its directory.
 * Logs of objects are in STORE/objects/xx.
 */
static char *find_place(const char *log)
{
    g_autofree char *dir = g_path_get_dirname(log);
    g_autofree char *objects = g_path_get_dirname(dir);
    g_autofree char *store = g_path_get_dirname(objects);

    return is_store(dir) || is_store(store) ? g_steal_pointer(&dir) : g_strdup(log);
}

static int confine(const GPtrArray *logs, struct wb_error *why)
{
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autofree gpointer *places = NULL;
    guint count;

    for (guint i = 0; i < logs->len; i++)
        g_hash_table_add(seen, find_place(g_ptr_array_index(logs, i)));
    places = g_hash_table_get_keys_as_array(seen, &count);
    return wb_confine_files((const char *const *)places, count, why);
}

/* Which log the lines that follow are from. */
static void print_title(const char *path)
{
    g_autoptr(JsonBuilder) builder = NULL;
    g_autofree char *quoted = NULL;

    if (!json) {
        quoted = wb_json_literal(path);
        printf("# %s\n", quoted);
        return;
    }
    builder = json_builder_new();
    json_builder_begin_object(builder);
    wb_json_string(builder, "log", path);
    json_builder_end_object(builder);
    wb_json_entry(builder);
}

/* `kept`: where the log can be read; messages have the path that was given. */
static void dump(const char *path, const char *kept)
{
    unsigned flags = (json ? WB_DUMP_JSON : 0) | (verify ? WB_DUMP_VERIFY : 0);
    struct wb_dump_count count;
    struct wb_error why;
    int r = wb_dump_log(kept, stdout, flags, &count, &why);

    if (ferror(stdout))
        errno = -r; /* wb_cli_end reports it, except EPIPE */
    else if (r < 0)
        wb_cli_fail(NULL, "%s", why.text);
    else if (count.damaged > 0)
        wb_cli_fail(path, "%" G_GUINT64_FORMAT " damaged, %" G_GUINT64_FORMAT " records", count.damaged,
                    count.records);
}

int main(int argc, char **argv)
{
    g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GPtrArray) kept = g_ptr_array_new_with_free_func(g_free);
    int r = wb_cli_begin(&cli, options, &argc, &argv);
    struct wb_error why = {""};

    if (r >= 0)
        return r;
    for (int i = 1; i < argc; i++)
        g_ptr_array_extend_and_steal(all, find_logs(argv[i]));
    for (guint i = 0; i < all->len; i++)
        g_ptr_array_add(kept, keep_path(g_ptr_array_index(all, i)));
    if (confine(kept, &why) < 0)
        return wb_cli_fail(NULL, "%s", why.text);
    for (guint i = 0; i < all->len && !wb_cli_interrupted() && !ferror(stdout); i++) {
        if (all->len > 1)
            print_title(g_ptr_array_index(all, i));
        dump(g_ptr_array_index(all, i), g_ptr_array_index(kept, i));
        wb_json_separate();
    }
    return wb_cli_end();
}
