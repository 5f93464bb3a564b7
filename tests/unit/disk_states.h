/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * For trials of disk.h: a tree and its history as text, states that an end of the work must not change, and the checks
 * that hold after any end.
 */

#include "base/checksum.h"
#include "capture/recovery/recover.h"
#include "disk.h"
#include "history_tree.h"
#include "time/ctime_clock.h"
#include "wayback/check.h"
#include <ftw.h>
#include <inttypes.h>
#include <sys/xattr.h>

struct state {
    int64_t when;
    char *text;
};

static GArray *states; /* struct state: they must not change */

/* ---- a state as text: a line for each path, with ? in the place of refused ones --------------- */

static inline void print_state(GString *text, const char *path, struct wb_revision *revision);

static inline bool print_names_of(GString *text, const char *path, struct wb_revision *revision)
{
    struct wb_past_dir *dir;

    if (wb_past_dir_open(history, revision, &dir) < 0)
        return false;
    for (size_t i = 0; i < wb_past_dir_count(dir); i++) {
        g_autofree char *child = g_strdup_printf("%s/%s", path, wb_past_dir_name(dir, i));
        struct wb_revision *entry;

        if (wb_past_dir_revision(dir, i, &entry) < 0) {
            g_string_append_printf(text, "%s ?\n", child);
            continue;
        }
        print_state(text, child, entry);
        wb_revision_unref(entry);
    }
    wb_past_dir_free(dir);
    return true;
}

static inline bool print_value(GString *text, struct wb_revision *revision, const struct wb_attrs *attrs)
{
    char list[1024], value[1024];
    ssize_t n;

    if (S_ISREG(attrs->mode)) {
        g_autofree char *bytes = content_of(revision, &n);

        if (n < 0 || (uint64_t)n != attrs->size)
            return false;
        g_string_append_printf(text, " data=%016" PRIx64, wb_checksum(bytes, (size_t)n));
    } else if (S_ISLNK(attrs->mode)) {
        g_autofree char *target = NULL;

        if (wb_revision_readlink(history, revision, &target) < 0)
            return false;
        g_string_append_printf(text, " -> %s", target);
    }
    n = wb_revision_listxattr(history, revision, list, sizeof(list));
    if (n < 0)
        return false;
    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(list + i) + 1) {
        ssize_t length = wb_revision_getxattr(history, revision, list + i, value, sizeof(value));

        if (length < 0)
            return false;
        g_string_append_printf(text, " %s=%.*s", list + i, (int)length, value);
    }
    return true;
}

static inline void print_state(GString *text, const char *path, struct wb_revision *revision)
{
    struct wb_attrs attrs;
    gsize begin = text->len;
    bool known = wb_revision_attrs(history, revision, &attrs) == 0;

    if (known) {
        g_string_append_printf(text, "%s mode=%o uid=%u gid=%u nlink=%u size=%" PRIu64 " mtime=%" PRId64, path,
                               attrs.mode, attrs.uid, attrs.gid, attrs.nlink, S_ISDIR(attrs.mode) ? 0 : attrs.size,
                               attrs.mtime);
        known = print_value(text, revision, &attrs);
    }
    if (!known) {
        g_string_truncate(text, begin);
        g_string_append_printf(text, "%s ?", path);
    }
    g_string_append_c(text, '\n');
    if (known && S_ISDIR(attrs.mode)) {
        begin = text->len;
        if (!print_names_of(text, path, revision)) {
            g_string_truncate(text, begin);
            g_string_append_printf(text, "%s/ ?\n", path);
        }
    }
}

/* The tree at `when`, as the history has it. */
static inline char *state_at(int64_t when)
{
    GString *text = g_string_new("");
    struct wb_revision *root;

    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    if (wb_revision_root(history, when, &root) < 0) {
        g_string_append(text, " ?\n");
    } else {
        print_state(text, "", root);
        wb_revision_unref(root);
    }
    history = wb_history_free(history);
    return g_string_free(text, FALSE);
}

/* ---- the tree itself, without times -------------------------------------------------------------- */

static inline gint compare_paths(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline void print_present(GString *text, const char *path)
{
    char value[256] = "";
    g_autofree char *bytes = NULL;
    struct wb_attrs attrs;
    struct stat st;
    gsize length;
    ssize_t n;

    ck_assert_int_eq(lstat(path, &st), 0);
    /* A link in the graveyard is not the user's. */
    ck_assert_int_eq(wb_capture_stat(tree.store, AT_FDCWD, path, NULL, &attrs), 0);
    g_string_append_printf(text, "%s mode=%o uid=%u gid=%u nlink=%u", path + strlen(tree.path), st.st_mode, st.st_uid,
                           st.st_gid, S_ISDIR(st.st_mode) ? 0 : attrs.nlink);
    if (S_ISREG(st.st_mode)) {
        ck_assert(g_file_get_contents(path, &bytes, &length, NULL));
        g_string_append_printf(text, " size=%zu data=%016" PRIx64, length, wb_checksum(bytes, length));
    } else if (S_ISLNK(st.st_mode)) {
        n = readlink(path, value, sizeof(value) - 1);
        g_string_append_printf(text, " -> %.*s", (int)n, value);
    }
    n = lgetxattr(path, "user.x", value, sizeof(value) - 1);
    g_string_append_printf(text, "%.*s\n", (int)MAX(n, 0), value);
    if (S_ISDIR(st.st_mode)) {
        g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
        g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
        const char *name;

        while (dir && (name = g_dir_read_name(dir)))
            if (!g_str_has_prefix(name, WB_STORE_NAME))
                g_ptr_array_add(names, g_strdup_printf("%s/%s", path, name));
        g_ptr_array_sort(names, compare_paths);
        for (guint i = 0; i < names->len; i++)
            print_present(text, names->pdata[i]);
    }
}

static inline char *present_text(void)
{
    GString *text = g_string_new("");

    print_present(text, tree.path);
    return g_string_free(text, FALSE);
}

/* ---- states that must not change -------------------------------------------------------------- */

static inline void clear_state(void *data)
{
    g_free(((struct state *)data)->text);
}

/* This moment must look the same from now on. */
static inline void remember(void)
{
    struct state state = {.when = now()};

    if (!states) {
        states = g_array_new(FALSE, FALSE, sizeof(struct state));
        g_array_set_clear_func(states, clear_state);
    }
    state.text = state_at(state.when);
    ck_assert_msg(!strchr(state.text, '?'), "refused while it is the present:\n%s", state.text);
    g_array_append_val(states, state);
}

/* Whether the path of this line, or a directory above it, is refused in `text`. */
static inline bool is_refused(const char *text, const char *line)
{
    g_autofree char *path = g_strndup(line, strcspn(line, " "));

    for (;;) {
        g_autofree char *self = g_strdup_printf("\n%s ?\n", path), *names = g_strdup_printf("\n%s/ ?\n", path);
        char *slash = strrchr(path, '/');

        if (strstr(text, self) || (strcmp(path, "") == 0 && g_str_has_prefix(text, " ?\n")))
            return true;
        if (strncmp(path, line, strcspn(line, " ")) != 0 || strlen(path) < strcspn(line, " "))
            if (strstr(text, names))
                return true;
        if (!slash)
            return false;
        *slash = 0;
    }
}

/* Every line of `wanted` is in `found`, or refused there, and `found` has no others. */
static inline bool is_same_or_refused(const char *wanted, const char *found)
{
    g_auto(GStrv) lines = g_strsplit(wanted, "\n", -1), others = g_strsplit(found, "\n", -1);
    g_autofree char *within = g_strdup_printf("\n%s", found);

    for (char **line = lines; *line; line++)
        if (!g_strv_contains((const char *const *)others, *line) && !is_refused(within, *line))
            return false;
    for (char **line = others; *line; line++)
        if (!g_str_has_suffix(*line, " ?") && !g_strv_contains((const char *const *)lines, *line))
            return false;
    return true;
}

static unsigned states_exact, states_refused;

static inline void check_states(const struct disk_end *end, int64_t from, bool may_refuse)
{
    for (guint i = 0; states && i < states->len; i++) {
        const struct state *state = &g_array_index(states, struct state, i);
        g_autofree char *found = NULL;

        if (state->when < from)
            continue;
        found = state_at(state->when);
        if (strcmp(found, state->text) == 0) {
            states_exact++;
            continue;
        }
        states_refused++;
        ck_assert_msg(may_refuse && is_same_or_refused(state->text, found),
                      "%s: state %u was\n%sand now is\n%s(%s)", end->at, i, state->text, found, wb_history_error());
    }
}

/* ---- a store that is opened again ------------------------------------------------------------- */

/* The clock's file says that it was another boot. */
static inline void another_boot_in(const char *home)
{
    g_autofree char *path = g_strdup_printf("%s/inflight", home);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint64_t boot = 1;

    if (fd < 0)
        return;
    ck_assert_int_eq(wb_pwrite_full(fd, &boot, sizeof(boot), 24), 0);
    close(fd);
}

/* Where stores of trials are: in the tree, or moved beside it. */
static inline void another_boot(void)
{
    g_autofree char *inside = g_strdup_printf("%s/" WB_STORE_NAME, tree.path);
    g_autofree char *beside = g_strdup_printf("%s-store", tree.path);

    another_boot_in(inside);
    another_boot_in(beside);
}

static inline void add_finding(const struct wb_check_finding *finding, void *data)
{
    if (finding->state != WB_CHECK_NOTE)
        g_string_append_printf(data, "%s %s %s: %s\n", finding->code, finding->file ? finding->file : "",
                               finding->path ? finding->path : "", finding->text);
}

/* The findings of vfsck; free them. */
static inline char *findings(void)
{
    GString *text = g_string_new("");
    struct wb_check_listener listener = {.found = add_finding, .data = text};
    struct wb_check_result result;
    struct wb_error why = {""};
    int r = wb_check_store(tree.path, NULL, 0, &listener, &result, &why);

    if (r < 0)
        g_string_append_printf(text, "%d %s\n", r, why.text);
    return g_string_free(text, FALSE);
}

/* After preparing: nothing is open, nothing is under way, and everything has been on the disk for a tick of the clock. */
static inline void settle_store(void)
{
    wb_ctime_next_tick();
    wb_ctime_next_tick();
    tree_release(&tree);
    tree.store = wb_store_free(tree.store);
}

static inline void leave_store(void)
{
    tree_release(&tree);
    tree.store = wb_store_free(tree.store);
}

static inline void enter_store(void)
{
    tree_open_store(&tree);
    ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
}

/* The store opens, and the states are as they were. The store is open then. */
static inline void check_store(const struct disk_end *end, int64_t from)
{
    unsigned aborted;

    if (disk_is_cut(end))
        another_boot();
    enter_store();
    check_states(end, from, disk_is_cut(end));
    ck_assert_int_eq(wb_recover(tree.store, &aborted), 0);
    ck_assert_uint_eq(aborted, 0);
}

/* The same for a process that reads the store before recovery; it may be refused, but sees nothing else. */
static inline void check_reader(const struct disk_end *end, int64_t from)
{
    struct wb_error why = {""};

    if (disk_is_cut(end))
        another_boot();
    ck_assert_msg(wb_store_open(&tree.store, tree.fd, NULL, 0, &why) == 0, "%s: %s", end->at, why.text);
    check_states(end, from, true);
    tree.store = wb_store_free(tree.store);
}

/* A check of the store finds nothing wrong, and nothing left behind. */
static inline void check_sound(const struct disk_end *end)
{
    g_autofree char *wrong = NULL;

    if (end->way != DISK_STOP && end->way != DISK_FULL)
        return;
    leave_store();
    wrong = findings();
    ck_assert_msg(!*wrong, "%s: vfsck finds\n%s", end->at, wrong);
    enter_store();
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static inline void clean_tree(void)
{
    g_autofree char *home = g_strdup_printf("%s/" WB_STORE_NAME, tree.path);

    leave_store();
    disk_keep_shards(home);
    close(tree.fd);
    g_ptr_array_unref(tree.dirs);
    g_ptr_array_unref(tree.strings);
    nftw(tree.path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    g_clear_pointer(&states, g_array_unref);
}

/* Versions of changes after `since` that are neither aborted nor mere bookkeeping. */
static inline unsigned count_versions(int64_t since)
{
    GPtrArray *records = tree_records(&tree);
    unsigned count = 0;

    for (guint i = 0; i < records->len; i++) {
        const struct kept *kept = records->pdata[i];

        count += kept->record.when > since && !kept->aborted && kept->record.op != WB_OP_NONE;
    }
    g_ptr_array_unref(records);
    return count;
}
