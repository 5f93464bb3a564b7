/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The names of a directory against its catalog. Records hold the state before, but what an operation leaves behind is
 * known all the same: a name that was created last must be there, one that was removed last must not. Where that does
 * not hold, somebody changed the tree behind the mount.
 */
#include "check/checking.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define TRIES 20

enum expected { UNKNOWN, PRESENT, ABSENT };

/* What the operation of a record left at the name of one of its slots. */
static enum expected left_behind(const struct wb_record *record, const struct wb_slot *slot)
{
    if (wb_op_has(record->op, WB_EFFECT_NAMES))
        return PRESENT;
    if (wb_op_has(record->op, WB_EFFECT_UNNAMES))
        return wb_object_is_none(slot->from_dir) ? ABSENT : PRESENT;
    return UNKNOWN;
}

struct names_check {
    struct wb_checking *checking;
    int dir_fd;
    GHashTable *seen;  /* names of which the newest record was met: int64_t, its `when` */
    GHashTable *wrong; /* names: the state that was expected of them                    */
};

static void check_slot(struct names_check *names, const struct wb_record *record, const struct wb_slot *slot)
{
    g_autofree char *name = g_strndup(slot->name, slot->name_length);
    enum expected expected = left_behind(record, slot);
    struct stat st;
    int64_t *newest;
    bool there;

    if (g_hash_table_contains(names->seen, name))
        return;
    newest = g_new(int64_t, 1);
    *newest = record->when;
    there = fstatat(names->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (expected != UNKNOWN && (expected == PRESENT) != there && !wb_check_is_unsettled(names->checking, record->when))
        g_hash_table_insert(names->wrong, g_strdup(name), GINT_TO_POINTER(expected));
    g_hash_table_insert(names->seen, g_steal_pointer(&name), newest);
}

/* One look: fills `wrong`. 0 or -errno. */
static int look(struct names_check *names, int fd)
{
    struct wb_log_reader reader;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    g_hash_table_remove_all(names->seen);
    g_hash_table_remove_all(names->wrong);
    while (r == 0) {
        r = wb_log_reader_prev_effective(&reader, &skip, &record);
        /* Behind damage or a gap it is not known which record of a name is the newest. */
        if (r == WB_DAMAGED || (r == 0 && record.type == WB_REC_GAP))
            break;
        if (r == 0 && record.type == WB_REC_NAME)
            for (uint32_t i = 0; i < record.name.count; i++)
                check_slot(names, &record, &record.name.slots[i]);
    }
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

static void report_names(struct names_check *names, const char *path)
{
    GHashTableIter iter;
    void *name, *expected;

    g_hash_table_iter_init(&iter, names->wrong);
    while (g_hash_table_iter_next(&iter, &name, &expected)) {
        g_autofree char *full = *path ? g_strdup_printf("%s/%s", path, (char *)name) : g_strdup(name);
        struct wb_check_where where = {.path = full};

        wb_check_report(names->checking, WB_CHECK_NOTE, "external-name", where, NULL, "%s outside the mount",
                        GPOINTER_TO_INT(expected) == PRESENT ? "removed or renamed" : "created");
    }
}

int wb_check_names(struct wb_checking *checking, int dir_fd, struct wb_object dir, const char *path,
                   GHashTable **ret_newest)
{
    static const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    _cleanup_close_ int fd = -1;
    struct names_check names = {.checking = checking, .dir_fd = dir_fd};
    char file[WB_OBJECT_PATH_MAX];
    int r = 0;

    *ret_newest = NULL;
    wb_object_path(dir, WB_FILE_CATALOG, file);
    fd = openat(checking->dir_fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ELOOP ? 0 : -errno;
    names.seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    names.wrong = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    /* A record comes before its change: beside a daemon, what does not agree is looked at again. */
    for (int i = 0; i < TRIES; i++) {
        r = look(&names, fd);
        if (r < 0 || !checking->online || g_hash_table_size(names.wrong) == 0)
            break;
        nanosleep(&pause, NULL);
    }
    if (r == 0)
        report_names(&names, path);
    *ret_newest = names.seen;
    g_hash_table_unref(names.wrong);
    return r;
}
