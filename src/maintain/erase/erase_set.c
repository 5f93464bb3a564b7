/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds the objects of an erasure.
 *
 * Everything that ever was bound to one of the names; of directories among it, everything that ever was
 * in them. An object has one past, whatever names it was seen through: so its past at other
 * names is erased, too. One exception: a directory that has moved out and lives on at another place belongs
 * to that place, with all its content.
 */
#include "maintain/erase/erase_set.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "format/object_key.h"
#include "history/state/lookback.h"
#include "history/log_cursor.h"
#include "maintain/erase/erase.h"
#include "maintain/rewrite/rewrite.h"
#include "maintain/usage/usage.h"
#include "store/graveyard/bundle.h"
#include "store/object/catalog_path.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/*
 * Names that a file keeps when its past is erased: a hard link at another name, or the name itself with --history. Its
 * new log says where the file is, because all records that said so go; without that, a copy of the tree could not be
 * bound to the copy of its store. Names are collected from the records that go, and count when the tree confirms them.
 */

/* The newest are met first; a file that was renamed more often than this has its name among them. */
#define CANDIDATES_MAX (1u << 16)

static guint left_name_hash(const void *key)
{
    const struct wb_left_name *name = key;

    return wb_object_hash(&name->dir) * 33 ^ g_str_hash(name->name);
}

static gboolean left_name_equal(const void *a, const void *b)
{
    const struct wb_left_name *x = a, *y = b;

    return wb_object_equal(x->dir, y->dir) && strcmp(x->name, y->name) == 0;
}

static void note(struct wb_erasure *erasure, struct wb_object dir, const char *name, size_t length)
{
    struct wb_left_name *candidate;

    if (length == 0 || wb_object_is_none(dir) || g_hash_table_size(erasure->candidates) >= CANDIDATES_MAX)
        return;
    candidate = g_malloc0(sizeof(*candidate) + length + 1);
    candidate->dir = dir;
    memcpy(candidate->name, name, length);
    g_hash_table_add(erasure->candidates, candidate);
}

static bool may_live(struct wb_erasure *erasure, struct wb_object object)
{
    struct wb_erase_victim *victim = wb_erasure_find(erasure, object);

    if (!victim || victim->is_dir || victim->scope != WB_ERASE_SCOPE_ALL)
        return false;
    if (victim->lives == 0)
        victim->lives = wb_erasure_lives_on(erasure, object) != 0 ? 1 : -1;
    return victim->lives > 0;
}

static void note_via(struct wb_erasure *erasure, struct wb_object log, const struct wb_record *record)
{
    const struct wb_via *via = &record->via;
    struct wb_object object = record->type == WB_REC_ATTR    ? record->attr.object
                              : record->type == WB_REC_XATTR ? record->xattr.object
                                                             : log;

    if (via->length > 0 && may_live(erasure, object))
        note(erasure, wb_object_is_none(via->dir) ? log : via->dir, via->name, via->length);
}

/* Where a file went from a name, and which name was linked to which. */
static void note_slot(struct wb_erasure *erasure, struct wb_object log, const struct wb_record *record,
                      const struct wb_slot *slot)
{
    struct wb_origin *origin = wb_erasure_origin(erasure, log), *from;

    if (slot->present && slot->unbind == WB_UNBIND_RENAMED && may_live(erasure, slot->object))
        note(erasure, slot->to_dir, slot->to_name, slot->to_length);
    if (record->op != WB_OP_LINK || slot->from_length == 0)
        return;
    from = wb_erasure_origin(erasure, slot->from_dir);
    if (wb_erasure_is_name(origin, slot->name, slot->name_length))
        note(erasure, slot->from_dir, slot->from_name, slot->from_length);
    if (wb_erasure_is_name(from, slot->from_name, slot->from_length))
        note(erasure, log, slot->name, slot->name_length);
}

void wb_erasure_note_names(struct wb_erasure *erasure, struct wb_object log, const struct wb_record *record)
{
    switch (record->type) {
    case WB_REC_ATTR:
    case WB_REC_XATTR:
    case WB_REC_DATA:
        note_via(erasure, log, record);
        break;
    case WB_REC_PLACE:
        if (may_live(erasure, record->place.self))
            note(erasure, record->place.parent, record->place.name, record->place.name_length);
        break;
    case WB_REC_NAME:
        for (uint32_t i = 0; i < record->name.count; i++)
            note_slot(erasure, log, record, &record->name.slots[i]);
        break;
    default:
        break;
    }
}

/* Looks up the object that has the name now: 0, WB_ABSENT or -errno. */
static int look(struct wb_erasure *erasure, const struct wb_left_name *name, struct wb_object *ret)
{
    _cleanup_close_ int fd = -1;
    int r = wb_catalog_path_open_dir(erasure->store, name->dir, &fd);

    if (r == 0)
        r = wb_object_stat(erasure->store, fd, name->name, ret, NULL, NULL);
    return r == -ENOENT || r == -ENOTDIR || r == -EXDEV || r == -EIO || r == -ESTALE ? WB_ABSENT : r;
}

int wb_erasure_find_names(struct wb_erasure *erasure)
{
    GHashTableIter iter;
    void *key;
    int r = 0;

    for (guint i = 0; i < erasure->targets->len; i++) {
        const struct wb_erased_name *target = erasure->targets->pdata[i];

        if (target->present)
            note(erasure, wb_revision_object(target->dir), target->name, strlen(target->name));
    }
    g_hash_table_iter_init(&iter, erasure->candidates);
    while (r >= 0 && g_hash_table_iter_next(&iter, &key, NULL)) {
        struct wb_left_name *name = key;
        struct wb_object object;
        struct wb_erase_victim *victim;

        r = look(erasure, name, &object);
        if (r != 0 || !may_live(erasure, object))
            continue;
        victim = wb_erasure_find(erasure, object);
        name->next = victim->left;
        victim->left = name;
    }
    return MIN(r, 0);
}

int wb_erasure_append_places(struct wb_erasure *erasure, const struct wb_erase_victim *victim, int64_t when,
                             struct wb_rewrite *rewrite)
{
    struct wb_record record = {.type = WB_REC_PLACE, .place.self = victim->object};
    int r = 0;

    for (const struct wb_left_name *name = victim->left; r >= 0 && name; name = name->next) {
        record.when = when ? when : wb_store_tick(erasure->store);
        record.flags = when && name->next ? WB_RECORD_MORE : 0;
        record.place.parent = name->dir;
        record.place.name = name->name;
        record.place.name_length = (uint8_t)strlen(name->name);
        r = wb_rewrite_append(rewrite, &record, -1);
    }
    return r;
}

/*
 * Returns how many bytes on the disk an erasure frees. Blocks that other files share are counted apart: they are free
 * when the last of these files is gone.
 */

#define BLOCK 512

/* A bundle: its blocks are freed as a whole when all its names go, and in proportion when others keep it. */
struct bundle {
    guint64 ino; /* the key */
    struct wb_erased_name *by;
    uint64_t disk, names, going, size, size_going;
};

struct measure {
    const struct wb_erasure *erasure;
    GHashTable *bundles; /* ino -> struct bundle */
};

static void add_size(struct wb_erased_name *by, uint64_t disk, uint64_t shared)
{
    by->freed.history += disk;
    by->freed.all += disk;
    by->freed.shared += shared;
}

/* Blocks of a file of the store: 1, 0 when it does not exist, or -errno. */
static int stat_file(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                     struct wb_erase_blocks *ret)
{
    bool buried = file == WB_FILE_DATA || file == WB_FILE_DIR;
    int dir_fd = buried ? store->grave_fd : store->dir_fd;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    *ret = (struct wb_erase_blocks){0};
    if (dir_fd < 0)
        return 0;
    wb_object_path(object, file, path);
    if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    *ret = wb_erase_blocks(dir_fd, path, &st);
    return 1;
}

struct wb_erase_blocks wb_erase_blocks(int dir_fd, const char *path, const struct stat *st)
{
    struct wb_erase_blocks blocks = {.disk = (uint64_t)st->st_blocks * BLOCK, .links = st->st_nlink};
    int fd;

    if (!S_ISREG(st->st_mode) || st->st_blocks == 0)
        return blocks;
    fd = openat(dir_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
    if (fd < 0)
        return blocks;
    blocks.shared = MIN(wb_usage_shared(fd), blocks.disk);
    close(fd);
    return blocks;
}

static int count_file(const struct wb_erasure *erasure, const struct wb_erase_victim *victim, enum wb_object_file file)
{
    struct wb_erase_blocks blocks;
    int r = stat_file(erasure->store, victim->object, file, &blocks);

    /* A deleted file that still has a name in the tree occupies the blocks of that name. */
    if (r > 0 && (blocks.links == 1 || file == WB_FILE_DIR))
        add_size(victim->by, blocks.disk - blocks.shared, blocks.shared);
    return MIN(r, 0);
}

/* The log of an object that stays is replaced by one that only says that its past is unknown: one block. */
static int count_log(const struct wb_erasure *erasure, const struct wb_erase_victim *victim, bool stays,
                     bool goes_later)
{
    enum wb_object_file file = victim->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO;
    struct wb_erase_blocks blocks;
    struct stat st;
    uint64_t rest;
    int r = stat_file(erasure->store, victim->object, file, &blocks);

    if (r <= 0)
        return r;
    if (fstat(erasure->store->dir_fd, &st) < 0)
        return -errno;
    rest = stays ? MIN((uint64_t)st.st_blksize, blocks.disk) : 0;
    add_size(victim->by, blocks.disk - rest, 0);
    if (goes_later)
        victim->by->freed.all += rest;
    return 0;
}

static int count_bundle(const struct measure *measure, const struct wb_erase_victim *victim, enum wb_object_file file)
{
    const struct wb_bundle_member *member;
    struct wb_bundle *bundle;
    struct bundle *known;
    struct stat st;
    guint64 ino;
    int r = wb_bundle_open(measure->erasure->store, victim->object, file, &bundle);

    /* A damaged one is erased all the same. */
    if (r != 0)
        return r == WB_ABSENT || r == -EBADMSG ? 0 : r;
    if (fstat(bundle->fd, &st) < 0) {
        r = -errno;
        wb_bundle_free(bundle);
        return r;
    }
    ino = st.st_ino;
    known = g_hash_table_lookup(measure->bundles, &ino);
    if (!known) {
        known = g_new0(struct bundle, 1);
        *known =
            (struct bundle){.ino = ino, .by = victim->by, .disk = (uint64_t)st.st_blocks * BLOCK, .names = st.st_nlink};
        for (uint32_t i = 0; i < bundle->count; i++)
            known->size += bundle->members[i].size;
        g_hash_table_insert(measure->bundles, &known->ino, known);
    }
    member = wb_bundle_find(bundle, victim->object);
    known->going++;
    known->size_going += member ? member->size : 0;
    wb_bundle_free(bundle);
    return 0;
}

static int count_object(const struct measure *measure, const struct wb_erase_victim *victim)
{
    const struct wb_erasure *erasure = measure->erasure;
    bool goes_later, stays;
    int r;

    if (victim->is_dir) {
        goes_later = stays = victim->here;
    } else {
        r = wb_grave_has(erasure->store, victim->object, false);
        if (r < 0)
            return r;
        /* Each of its names is erased. */
        goes_later = victim->here && victim->names + (unsigned)r >= victim->blocks.links;
        r = wb_erasure_lives_on(erasure, victim->object);
        if (r < 0)
            return r;
        stays = r;
    }
    r = count_log(erasure, victim, stays, goes_later);
    if (goes_later) {
        victim->by->freed.all += victim->blocks.disk - victim->blocks.shared;
        victim->by->freed.shared += victim->blocks.shared;
    }
    if (r >= 0 && victim->is_dir)
        return victim->here ? 0 : count_file(erasure, victim, WB_FILE_DIR);
    if (r >= 0)
        r = count_file(erasure, victim, WB_FILE_DATA);
    if (r >= 0)
        r = count_file(erasure, victim, WB_FILE_IMAGE);
    if (r >= 0)
        r = count_bundle(measure, victim, WB_FILE_BUNDLE);
    return r < 0 ? r : count_bundle(measure, victim, WB_FILE_BUNDLE_OLD);
}

static void add_bundles(GHashTable *bundles)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, bundles);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct bundle *bundle = value;
        double part = bundle->going >= bundle->names || bundle->size == 0
                          ? 1.0
                          : (double)bundle->size_going / (double)bundle->size;

        add_size(bundle->by, (uint64_t)((double)bundle->disk * part), 0);
    }
}

int wb_erasure_measure(const struct wb_erasure *erasure)
{
    g_autoptr(GHashTable) bundles = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    struct measure measure = {erasure, bundles};
    GHashTableIter iter;
    void *value;
    int r = 0;

    g_hash_table_iter_init(&iter, erasure->objects);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_erase_victim *victim = value;

        if (victim->scope == WB_ERASE_SCOPE_ALL)
            r = count_object(&measure, victim);
    }
    add_bundles(bundles);
    return MIN(r, 0);
}

/* The names of an erasure, by the directories that they are in. */

static void target_free(void *data)
{
    struct wb_erased_name *target = data;

    g_clear_pointer(&target->shared, g_hash_table_unref);
    g_free(target);
}

static void origin_free(void *data)
{
    struct wb_origin *origin = data;

    g_hash_table_unref(origin->names);
    g_free(origin);
}

void wb_erasure_init(struct wb_erasure *erasure, struct wb_history *history, unsigned flags)
{
    *erasure = (struct wb_erasure){.history = history, .store = wb_history_store(history), .flags = flags};
    erasure->targets = g_ptr_array_new_with_free_func(target_free);
    erasure->origins = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, origin_free);
    erasure->candidates = g_hash_table_new_full(left_name_hash, left_name_equal, g_free, NULL);
    erasure->objects = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, g_free);
    erasure->catalogs = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
    erasure->departures = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    erasure->actors = g_hash_table_new(NULL, NULL);
    erasure->order = g_ptr_array_new();
    erasure->written = g_array_new(FALSE, FALSE, sizeof(struct wb_object));
}

void wb_erasure_deinit(struct wb_erasure *erasure)
{
    g_clear_pointer(&erasure->written, g_array_unref);
    g_clear_pointer(&erasure->order, g_ptr_array_unref);
    g_clear_pointer(&erasure->objects, g_hash_table_unref);
    g_clear_pointer(&erasure->candidates, g_hash_table_unref);
    g_clear_pointer(&erasure->catalogs, g_hash_table_unref);
    g_clear_pointer(&erasure->departures, g_hash_table_unref);
    g_clear_pointer(&erasure->actors, g_hash_table_unref);
    g_clear_pointer(&erasure->origins, g_hash_table_unref);
    g_clear_pointer(&erasure->targets, g_ptr_array_unref);
}

/* ---- names ----------------------------------------------------------------------------------- */

int wb_erasure_add(struct wb_erasure *erasure, struct wb_revision *dir, const char *name)
{
    struct wb_origin *origin = wb_erasure_origin(erasure, wb_revision_object(dir));
    struct wb_erased_name *target;

    if (origin && g_hash_table_contains(origin->names, name))
        return -ENOENT;
    if (!origin) {
        origin = g_new0(struct wb_origin, 1);
        origin->dir = wb_revision_object(dir);
        origin->names = g_hash_table_new(g_str_hash, g_str_equal);
        g_hash_table_insert(erasure->origins, &origin->dir, origin);
    }
    target = g_new0(struct wb_erased_name, 1);
    target->dir = dir;
    target->name = name;
    target->shared = g_hash_table_new(NULL, NULL);
    g_ptr_array_add(erasure->targets, target);
    g_hash_table_insert(origin->names, (void *)(uintptr_t)name, target);
    return 0;
}

/* Nothing was found by this name, and nothing is going to be: it leaves the set. */
static void erasure_refuse(struct wb_erasure *erasure, struct wb_erased_name *target, int error)
{
    struct wb_origin *origin = wb_erasure_origin(erasure, wb_revision_object(target->dir));

    target->refused = error;
    g_hash_table_remove(origin->names, target->name);
    if (g_hash_table_size(origin->names) == 0)
        g_hash_table_remove(erasure->origins, &origin->dir);
}

struct wb_origin *wb_erasure_origin(const struct wb_erasure *erasure, struct wb_object dir)
{
    return g_hash_table_lookup(erasure->origins, &dir);
}

static struct wb_erased_name *erasure_name(const struct wb_origin *origin, const char *name, uint8_t length)
{
    char text[WB_NAME_MAX + 1];

    memcpy(text, name, length);
    text[length] = '\0';
    return g_hash_table_lookup(origin->names, text);
}

bool wb_erasure_is_name(const struct wb_origin *origin, const char *name, uint8_t length)
{
    return origin && erasure_name(origin, name, length);
}

/* ---- objects --------------------------------------------------------------------------------- */

struct wb_erase_victim *wb_erasure_find(const struct wb_erasure *erasure, struct wb_object object)
{
    return g_hash_table_lookup(erasure->objects, &object);
}

/* `top`: it has or had the erased name itself. */
static struct wb_erase_victim *add(struct wb_erasure *erasure, struct wb_object object, const struct wb_attrs *attrs,
                                   struct wb_erased_name *by, bool top)
{
    struct wb_erase_victim *victim = wb_erasure_find(erasure, object);

    by->found = true;
    if (victim && victim->by != by && top)
        g_hash_table_add(by->shared, victim);
    if (victim)
        return victim;
    victim = g_new0(struct wb_erase_victim, 1);
    victim->object = object;
    victim->by = by;
    victim->lead = top ? wb_revision_object(by->dir) : WB_OBJECT_NONE;
    victim->is_dir = S_ISDIR(attrs->mode);
    victim->uid = attrs->uid;
    g_hash_table_insert(erasure->objects, &victim->object, victim);
    if (victim->is_dir)
        g_ptr_array_add(erasure->order, victim);
    return victim;
}

/* ---- what is there now ----------------------------------------------------------------------- */

/* top/path, where it is a directory: its entries join the queue. */
static int add_present_entries(struct wb_erasure *erasure, int top, const char *path, GQueue *queue)
{
    _cleanup_closedir_ DIR *stream = wb_opendir_at(top, path);
    struct dirent *entry;
    int r = 0;

    if (!stream)
        return -errno;
    while (wb_next_entry(stream, &entry, &r))
        g_queue_push_tail(queue, g_strconcat(path, "/", entry->d_name, NULL));
    return r;
}

/* Of what is in the graveyard something is left there, until age takes it away with its log; what came back has one. */
static int went_by_age(const struct wb_erasure *erasure, struct wb_object object)
{
    const struct wb_erase_victim *victim = wb_erasure_find(erasure, object);
    int had;

    if (!victim || !victim->kept || victim->here || wb_store_horizon(erasure->store) == 0)
        return 0;
    had = wb_store_has_log(erasure->store, object, WB_FILE_UNDO);
    return had < 0 ? had : !had;
}

int wb_erasure_lives_on(const struct wb_erasure *erasure, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    int r;

    if (erasure->store->grave_fd < 0)
        return 1;
    wb_object_path(object, WB_FILE_DATA, path);
    if (fstatat(erasure->store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return st.st_nlink > 1;
    if (errno != ENOENT)
        return -errno;
    wb_object_path(object, WB_FILE_GONE, path);
    if (fstatat(erasure->store->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    if (errno != ENOENT)
        return -errno;
    r = went_by_age(erasure, object);
    return r < 0 ? r : !r;
}

/* Adds the object that has the name in the directory `top`, and all below it: these exist now and are kept. */
static int add_present(struct wb_erasure *erasure, int top, struct wb_erased_name *target)
{
    GQueue queue = G_QUEUE_INIT;
    int r = 0;

    g_queue_push_tail(&queue, g_strdup(target->name));
    while (r >= 0 && !g_queue_is_empty(&queue)) {
        g_autofree char *path = g_queue_pop_head(&queue);
        bool is_top = strcmp(path, target->name) == 0;
        struct wb_erase_victim *victim;
        struct wb_object object;
        struct wb_attrs attrs;
        struct stat st;

        r = wb_object_stat(erasure->store, top, path, &object, &attrs, &st);
        /* Another file system mounted there has no history here. */
        if (r == -ENOENT || r == -EXDEV) {
            r = 0;
        } else if (r >= 0) {
            victim = add(erasure, object, &attrs, target, is_top);
            victim->here = true;
            if (victim->names++ == 0 && erasure->measured)
                victim->blocks = wb_erase_blocks(top, path, &st);
            /* The catalog of a directory that lives on has the records of the name itself. */
            victim->touched |= erasure->before && is_top;
            if (S_ISDIR(attrs.mode))
                r = add_present_entries(erasure, top, path, &queue);
        }
    }
    g_queue_clear_full(&queue, g_free);
    return r;
}

static int gather_present(struct wb_erasure *erasure, struct wb_erased_name *target)
{
    _cleanup_close_ int fd = wb_revision_open_present(erasure->history, target->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct wb_attrs attrs;
    int r;

    if (fd < 0)
        return fd == -EIO || fd == -ENOENT ? WB_ABSENT : fd;
    r = wb_object_stat(erasure->store, fd, target->name, NULL, &attrs, NULL);
    if (r == -ENOENT)
        return WB_ABSENT;
    if (r < 0)
        return r;
    if (erasure->flags & WB_ERASE_PRESENT)
        return -EEXIST;
    if (S_ISDIR(attrs.mode) && !(erasure->flags & WB_ERASE_RECURSIVE))
        return -EISDIR;
    target->present = true;
    return add_present(erasure, fd, target);
}

/* ---- what was -------------------------------------------------------------------------------- */

/* Whether a directory that was here is somewhere else now. */
static int lives_elsewhere(struct wb_erasure *erasure, struct wb_object dir)
{
    _cleanup_close_ int fd = -1;
    int r = wb_catalog_path_open_dir(erasure->store, dir, &fd);

    if (r == 0)
        return 1;
    /* Without a catalog it never moved, and here it is not; at none of its places, it is no more. */
    return r == WB_ABSENT || r == -ENOENT || r == -EIO ? 0 : r;
}

static int add_past(struct wb_erasure *erasure, const struct wb_slot *slot, struct wb_erased_name *by, bool top)
{
    bool known = slot->present && wb_erasure_find(erasure, slot->object);
    struct wb_erase_victim *victim;
    int r;

    if (!slot->present || (known && !top))
        return 0;
    victim = add(erasure, slot->object, &slot->attrs, by, top);
    if (known)
        return 0;
    victim->touched = erasure->before && top;
    if (!victim->is_dir)
        return 0;
    r = lives_elsewhere(erasure, slot->object);
    if (r > 0)
        victim->scope = WB_ERASE_SCOPE_HERE;
    return r < 0 ? r : 0;
}

/* Gathers all objects that `dir` ever had: under the names of `origin`; NULL: under any name, since `dir` itself was
 * found by the name `by`. */
static int gather_past(struct wb_erasure *erasure, struct wb_object dir, const struct wb_origin *origin,
                       struct wb_erased_name *by)
{
    struct wb_log_cursor source;
    const struct wb_record *head = &source.head;
    int r = wb_log_cursor_open(&source, erasure->store, dir, WB_FILE_CATALOG);

    if (r < 0)
        return r;
    /* Damaged records are skipped: the records behind them are still found. */
    while ((r = wb_log_cursor_peek(&source)) == 0 || r == WB_DAMAGED) {
        int added = 0;

        if (r == WB_DAMAGED)
            continue;
        for (uint32_t i = 0; head->type == WB_REC_NAME && i < head->name.count && added >= 0; i++) {
            const struct wb_slot *slot = &head->name.slots[i];
            struct wb_erased_name *target = origin ? erasure_name(origin, slot->name, slot->name_length) : by;

            if (target)
                added = add_past(erasure, slot, target, origin != NULL);
        }
        wb_log_cursor_take(&source);
        if (added < 0) {
            r = added;
            break;
        }
    }
    wb_log_cursor_close(&source);
    return r < 0 ? r : 0;
}

/* Only -r may erase what was a directory at last. */
static int check_newest(const struct wb_erasure *erasure, const struct wb_erased_name *target)
{
    struct wb_unbind_record unbind;
    int r;

    if (erasure->flags & WB_ERASE_RECURSIVE)
        return 0;
    r = wb_lookback_find_unbind(erasure->store, wb_revision_object(target->dir), target->name, WB_WHEN_PRESENT,
                                &unbind);
    return r == 0 && S_ISDIR(unbind.attrs.mode) ? -EISDIR : 0;
}

/* What is there now comes before all that was: a directory that lives at one of the names goes with it, although it
 * was at another one before. */
static int gather_presents(struct wb_erasure *erasure)
{
    for (guint i = 0; i < erasure->targets->len; i++) {
        struct wb_erased_name *target = erasure->targets->pdata[i];
        int r = gather_present(erasure, target);

        if (r == WB_ABSENT)
            r = check_newest(erasure, target);
        if (r == -EISDIR || r == -EEXIST)
            erasure_refuse(erasure, target, r);
        else if (r < 0)
            return r;
    }
    return 0;
}

static void count_objects(struct wb_erasure *erasure)
{
    GHashTableIter iter;
    void *key, *value;

    g_hash_table_iter_init(&iter, erasure->objects);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_erase_victim *victim = value;

        victim->by->objects += victim->scope == WB_ERASE_SCOPE_ALL;
    }
    for (guint i = 0; i < erasure->targets->len; i++) {
        struct wb_erased_name *target = erasure->targets->pdata[i];

        g_hash_table_iter_init(&iter, target->shared);
        while (g_hash_table_iter_next(&iter, &key, NULL))
            target->objects += ((const struct wb_erase_victim *)key)->scope == WB_ERASE_SCOPE_ALL;
        if (!target->found && target->refused == 0)
            erasure_refuse(erasure, target, -ENOENT);
    }
}

int wb_erasure_gather(struct wb_erasure *erasure)
{
    int r = gather_presents(erasure);
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, erasure->origins);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_origin *origin = value;

        r = gather_past(erasure, origin->dir, origin, NULL);
    }
    /* The list grows during the iteration: breadth first, so that the directory whose catalog leads to another one
     * comes before it. */
    for (guint i = 0; r >= 0 && i < erasure->order->len; i++) {
        const struct wb_erase_victim *victim = erasure->order->pdata[i];

        if (victim->scope == WB_ERASE_SCOPE_ALL)
            r = gather_past(erasure, victim->object, NULL, victim->by);
    }
    if (r >= 0)
        count_objects(erasure);
    return r;
}

/* ---- whose it is ----------------------------------------------------------------------------- */

/* A buried inode shows its owner; for an object that moved on, the record by which it left shows it. */
static int owner_of(const struct wb_erasure *erasure, const struct wb_erase_victim *victim, uint32_t *ret)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    *ret = victim->uid;
    if (victim->here || erasure->store->grave_fd < 0)
        return 0;
    wb_object_path(victim->object, victim->is_dir ? WB_FILE_DIR : WB_FILE_DATA, path);
    if (fstatat(erasure->store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    *ret = st.st_uid;
    return 0;
}

int wb_erasure_check_owner(const struct wb_erasure *erasure, uint32_t uid)
{
    GHashTableIter iter;
    void *value;

    if (uid == 0)
        return 0;
    g_hash_table_iter_init(&iter, erasure->objects);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_erase_victim *victim = value;
        uint32_t owner;
        int r;

        if (victim->scope != WB_ERASE_SCOPE_ALL)
            continue;
        r = owner_of(erasure, victim, &owner);
        if (r < 0 || owner != uid)
            return r < 0 ? r : -EPERM;
    }
    return 0;
}
