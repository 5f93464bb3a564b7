/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lets a store follow its tree to another place. Nothing that is there is changed but the version in the header: what
 * the new inodes are is one new file, written beside and put in its place by a rename; so whatever stops this leaves a
 * store that is refused as before, and it can be done again.
 */
#include "check/rebind/rebind.h"

#include "base/io.h"
#include "format/object_key.h"
#include "store/identity/identities.h"
#include "store/inflight/spans.h"
#include "wayback/when.h"
#include <errno.h>
#include <unistd.h>

/* ---- tables --------------------------------------------------------------------------------------- */

static guint fact_hash(const void *key)
{
    const struct wb_fact *fact = key;

    return wb_object_hash(&fact->dir) * 33 ^ g_str_hash(fact->name);
}

static gboolean fact_equal(const void *a, const void *b)
{
    const struct wb_fact *x = a, *y = b;

    return wb_object_equal(x->dir, y->dir) && g_str_equal(x->name, y->name);
}

static guint parted_hash(const void *key)
{
    const struct wb_parted *parted = key;

    return g_int64_hash(&parted->mtime) ^ (guint)parted->size;
}

static gboolean parted_equal(const void *a, const void *b)
{
    const struct wb_parted *x = a, *y = b;

    return x->size == y->size && x->mtime == y->mtime;
}

static void match_free(void *data)
{
    struct wb_match *match = data;

    g_free(match->path);
    g_free(match);
}

static guint scope_hash(const void *key)
{
    return g_str_hash(((const struct wb_scope *)key)->path);
}

static gboolean scope_equal(const void *a, const void *b)
{
    return g_str_equal(((const struct wb_scope *)a)->path, ((const struct wb_scope *)b)->path);
}

static void init(struct wb_rebinding *rebinding, struct wb_checking *checking)
{
    /* Subjects and matches begin with the object they are found by. */
    *rebinding = (struct wb_rebinding){
        .checking = checking,
        .scopes = g_hash_table_new_full(scope_hash, scope_equal, g_free, NULL),
        .facts = g_hash_table_new_full(fact_hash, fact_equal, g_free, NULL),
        .subjects = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL),
        .links = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free),
        .parted = g_hash_table_new_full(parted_hash, parted_equal, g_free, NULL),
        .matches = g_hash_table_new_full(wb_object_hash, wb_object_is_key, match_free, NULL),
    };
}

static void deinit(struct wb_rebinding *rebinding)
{
    g_hash_table_unref(rebinding->scopes);
    g_hash_table_unref(rebinding->facts);
    g_hash_table_unref(rebinding->subjects);
    g_hash_table_unref(rebinding->links);
    g_hash_table_unref(rebinding->parted);
    g_hash_table_unref(rebinding->matches);
}

/* ---- doing it --------------------------------------------------------------------------------------- */

/* "Here it is, and states before now are not known." The place is for who does this once more. */
static int mark(struct wb_rebinding *rebinding, const struct wb_match *match)
{
    struct wb_record place = {.type = WB_REC_PLACE}, gap = {.type = WB_REC_GAP};
    const char *slash = strrchr(match->path, '/'), *name = slash ? slash + 1 : match->path;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_log *log;
    int r;

    wb_object_path(match->object, match->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO, path);
    r = wb_log_open(&log, rebinding->checking->dir_fd, path, true);
    if (r < 0)
        return r;
    place.when = ++rebinding->newest;
    place.place.self = match->object;
    place.place.parent = match->dir;
    place.place.name = name;
    place.place.name_length = (uint8_t)strlen(name);
    gap.when = ++rebinding->newest;
    gap.gap.reason = WB_GAP_EXTERNAL;
    pthread_mutex_lock(&log->lock);
    r = wb_log_append_locked(log, &place, NULL, 0);
    if (r == 0)
        r = wb_log_append_locked(log, &gap, NULL, 0);
    pthread_mutex_unlock(&log->lock);
    wb_log_free(log);
    return r;
}

static int mark_doubtful(struct wb_rebinding *rebinding)
{
    GHashTableIter iter;
    void *value;
    int r = 0;

    rebinding->newest = MAX(rebinding->newest, wb_when_now());
    g_hash_table_iter_init(&iter, rebinding->matches);
    while (r == 0 && g_hash_table_iter_next(&iter, NULL, &value))
        if (((const struct wb_match *)value)->doubtful)
            r = mark(rebinding, value);
    return r == 0 && syncfs(rebinding->checking->dir_fd) < 0 ? -errno : r;
}

static int write_identities(struct wb_rebinding *rebinding)
{
    guint count = g_hash_table_size(rebinding->matches), used = 0;
    g_autofree struct wb_identity *list = g_try_new(struct wb_identity, count);
    GHashTableIter iter;
    void *value;

    if (!list)
        return -ENOMEM;
    g_hash_table_iter_init(&iter, rebinding->matches);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_match *match = value;

        list[used++] = (struct wb_identity){match->inode, match->object};
    }
    return wb_identities_write(rebinding->checking->dir_fd, list, used);
}

/* An earlier version knows nothing of identities: the header says so before there are any. */
static int raise_version(struct wb_checking *checking)
{
    uint8_t data[WB_HEADER_SIZE];

    if (checking->header.version == WB_FORMAT_VERSION)
        return 0;
    checking->header.version = WB_FORMAT_VERSION;
    wb_header_encode(&checking->header, data);
    return wb_replace_file(checking->dir_fd, WB_HEADER_NAME, data, sizeof(data), 0600);
}

static int carry_out(struct wb_rebinding *rebinding)
{
    int r = mark_doubtful(rebinding);

    if (r == 0)
        r = raise_version(rebinding->checking);
    /* Every object is new here, and was compared with its records above. */
    if (r == 0)
        r = wb_spans_begin_anew(rebinding->checking->dir_fd);
    return r == 0 ? write_identities(rebinding) : r;
}

/* ---- the whole --------------------------------------------------------------------------------------- */

static void count_recorded(const struct wb_rebinding *rebinding, uint64_t *recorded)
{
    GHashTableIter iter;
    void *value;

    *recorded = 0;
    g_hash_table_iter_init(&iter, rebinding->matches);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        *recorded += ((const struct wb_match *)value)->recorded;
}

static int conclude(struct wb_rebinding *rebinding, bool dry)
{
    struct wb_checking *checking = rebinding->checking;
    struct wb_check_where where = {.file = WB_HEADER_NAME};
    bool all = wb_check_mends(checking, true);
    g_autofree char *remedy = NULL;
    uint64_t recorded;

    count_recorded(rebinding, &recorded);
    if (rebinding->hindered > 0 || (!all && rebinding->lost_track + rebinding->doubtful > 0)) {
        wb_check_report(checking, WB_CHECK_WRONG, "other-tree", where,
                        rebinding->hindered > 0 ? "cannot be bound to this tree, for the reasons above"
                                                : "-y binds it to this tree, with the losses above",
                        "the store belongs to another tree");
        return 0;
    }
    remedy = g_strdup_printf("%s to this tree: of %u inodes, %" G_GUINT64_FORMAT " have records",
                             dry ? "can be bound" : "bound", g_hash_table_size(rebinding->matches), recorded);
    if (dry)
        wb_check_report(checking, WB_CHECK_WRONG, "other-tree", where, remedy, "the store belongs to another tree");
    else
        wb_check_report_mended(checking, carry_out(rebinding), "other-tree", where, remedy,
                               "the store belonged to another tree");
    return 0;
}

int wb_check_rebind(struct wb_checking *checking, bool dry, struct wb_error *why)
{
    struct wb_rebinding rebinding;
    int r;

    if (checking->unsettled_count > 0)
        return wb_error_set(why, -EBUSY,
                            "%u changes were in progress when the store was copied, and only the "
                            "original tree shows whether they were made; mount the original, unmount it, and copy "
                            "it again",
                            checking->unsettled_count);
    init(&rebinding, checking);
    r = wb_rebind_read(&rebinding);
    if (r == 0)
        r = wb_rebind_match(&rebinding);
    if (r == 0)
        r = conclude(&rebinding, dry);
    deinit(&rebinding);
    if (r == -ECANCELED)
        return wb_error_set(why, r, "stopped before the check was complete; nothing was changed");
    return r < 0 ? wb_error_set(why, r, "cannot bind the store to this tree: %s", g_strerror(-r)) : 0;
}
