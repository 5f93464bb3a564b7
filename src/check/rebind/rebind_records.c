/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads the facts about names and objects from the records. */
#include "check/rebind/rebind.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/directory/shard.h"
#include "store/tables/manifest.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct record_walk {
    struct wb_rebinding *rebinding;
    struct wb_object log; /* whose it is */
    bool is_catalog;
    bool placed;          /* a directory: its newest PLACE was met */
    bool failed;          /* memory was short */
};

/* ---- facts --------------------------------------------------------------------------------------- */

static struct wb_fact *fact_of(struct record_walk *walk, struct wb_object dir, const char *name, size_t length)
{
    struct wb_fact *fact = g_try_malloc0(sizeof(*fact) + length + 1), *known;

    if (!fact) {
        walk->failed = true;
        return NULL;
    }
    fact->dir = dir;
    memcpy(fact->name, name, length);
    known = g_hash_table_lookup(walk->rebinding->facts, fact);
    if (known) {
        g_free(fact);
        return known;
    }
    g_hash_table_add(walk->rebinding->facts, fact);
    return fact;
}

static void note_arrival(struct record_walk *walk, struct wb_object dir, const char *name, size_t length, int64_t when,
                         struct wb_object object, bool placed)
{
    struct wb_fact *fact = length > 0 ? fact_of(walk, dir, name, length) : NULL;

    /* A directory has its PLACE before the rename that takes it there: both speak of one arrival. */
    if (fact && wb_object_equal(fact->arrival, object))
        fact->placed |= placed;
    else if (fact && when > fact->arrived)
        fact->placed = placed;
    if (fact && when > fact->arrived) {
        fact->arrived = when;
        fact->arrival = object;
    }
}

static void note_meeting(struct record_walk *walk, const struct wb_record *record, struct wb_object object)
{
    const struct wb_via *via = &record->via;
    struct wb_object dir = wb_object_is_none(via->dir) && walk->is_catalog ? walk->log : via->dir;
    struct wb_fact *fact =
        via->length > 0 && !wb_object_is_none(dir) ? fact_of(walk, dir, via->name, via->length) : NULL;

    if (fact && record->written > fact->met) {
        fact->met = record->written;
        fact->meeting = object;
    }
}

/* ---- subjects ------------------------------------------------------------------------------------ */

struct wb_rebind_subject *wb_rebind_subject(struct wb_rebinding *rebinding, struct wb_object object)
{
    struct wb_rebind_subject *subject = g_hash_table_lookup(rebinding->subjects, &object);

    if (subject)
        return subject;
    subject = g_try_new0(struct wb_rebind_subject, 1);
    if (subject) {
        subject->object = object;
        g_hash_table_add(rebinding->subjects, subject);
    }
    return subject;
}

/* How many names it had after the change. */
static void note_links(struct wb_rebind_subject *subject, const struct wb_record *record, const struct wb_attrs *attrs,
                       bool kept)
{
    bool known = record->op == WB_OP_LINK || kept ||
                 (record->type != WB_REC_NAME && wb_op_has(record->op, WB_EFFECT_CONTENT | WB_EFFECT_ATTRS));

    /* The attributes in a slot count before those in another record of the same change. */
    if (record->written < subject->counted || (record->written == subject->counted && !kept))
        return;
    subject->counted = record->written;
    subject->links = !known ? 0 : kept ? attrs->nlink - (attrs->nlink > 0) : attrs->nlink + (record->op == WB_OP_LINK);
}

/* The object lived when this was recorded. */
static void note_life(struct record_walk *walk, const struct wb_record *record, struct wb_object object, uint32_t mode)
{
    struct wb_rebind_subject *subject = wb_rebind_subject(walk->rebinding, object);

    if (!subject) {
        walk->failed = true;
        return;
    }
    subject->seen = MAX(subject->seen, record->written);
    if (mode)
        subject->type = mode & S_IFMT;
    if (record->op == WB_OP_UTIMENS)
        subject->timed = MAX(subject->timed, record->written);
    if (wb_op_has(record->op, WB_EFFECT_CONTENT) || record->op == WB_OP_CREATE)
        subject->content = MAX(subject->content, record->written);
}

static void note_slot(struct record_walk *walk, const struct wb_record *record, const struct wb_slot *slot)
{
    struct wb_fact *fact = fact_of(walk, walk->log, slot->name, slot->name_length);
    struct wb_rebind_subject *subject;

    if (fact && record->written > fact->changed) {
        fact->changed = record->written;
        fact->linked = record->op == WB_OP_LINK;
    }
    if (!slot->present)
        return;
    wb_external_note(walk->rebinding->checking, slot->object, record);
    if (slot->unbind == WB_UNBIND_RENAMED) {
        note_life(walk, record, slot->object, slot->attrs.mode);
        note_arrival(walk, slot->to_dir, slot->to_name, slot->to_length, record->written, slot->object,
                     false);
        return;
    }
    subject = wb_rebind_subject(walk->rebinding, slot->object);
    if (!subject) {
        walk->failed = true;
        return;
    }
    subject->lost = MAX(subject->lost, record->written);
    subject->type = slot->attrs.mode & S_IFMT;
    note_links(subject, record, &slot->attrs, true);
}

static void note_attr(struct record_walk *walk, const struct wb_record *record, struct wb_object object,
                      const struct wb_attrs *attrs)
{
    struct wb_rebind_subject *subject;

    note_life(walk, record, object, attrs->mode);
    subject = g_hash_table_lookup(walk->rebinding->subjects, &object);
    if (subject)
        note_links(subject, record, attrs, false);
    /* Open and without a name: the tree does not have it, and after vrm the graveyard does not have it either. */
    if (subject && attrs->nlink == 0 && record->op != WB_OP_LINK)
        subject->lost = MAX(subject->lost, record->written);
    note_meeting(walk, record, object);
    wb_external_note(walk->rebinding->checking, object, record);
    if (record->op == WB_OP_LINK && record->type == WB_REC_ATTR) {
        int64_t *when = g_new(int64_t, 1);
        struct wb_object *copy = g_new(struct wb_object, 1);

        *when = record->written;
        *copy = object;
        g_hash_table_insert(walk->rebinding->links, when, copy);
    }
}

/* ---- what was forgotten by age ------------------------------------------------------------------- */

/* Records of the log were deleted by age. */
static void note_forgotten(struct record_walk *walk)
{
    struct wb_rebind_subject *subject = wb_rebind_subject(walk->rebinding, walk->log);

    if (subject)
        subject->forgotten = true;
    else
        walk->failed = true;
}

/*
 * A directory is where it came last; older PLACEs stand alone where the NAMEs that overtook them were forgotten. Those
 * of a file may be overtaken, too: its other records show its name, or there are none, and nothing is to be known.
 */
static void note_place(struct record_walk *walk, const struct wb_record *record)
{
    const struct wb_header *header = &walk->rebinding->checking->header;

    if (!walk->is_catalog && header->forgotten && record->written <= header->created) {
        note_forgotten(walk);
        return;
    }
    note_life(walk, record, record->place.self, walk->is_catalog ? S_IFDIR : 0);
    if (!walk->placed && !wb_object_is_none(record->place.parent))
        note_arrival(walk, record->place.parent, record->place.name, record->place.name_length, record->written,
                     record->place.self, walk->is_catalog);
    walk->placed = walk->is_catalog;
}

/* ---- logs ---------------------------------------------------------------------------------------- */

/* What is said of the names of this directory holds only from `when` on. */
static void distrust(struct record_walk *walk, int64_t when)
{
    struct wb_rebind_subject *subject = walk->is_catalog ? wb_rebind_subject(walk->rebinding, walk->log) : NULL;

    if (subject) {
        subject->trusted = MAX(subject->trusted, when);
        subject->missed = MAX(subject->missed, when);
    }
    walk->failed |= walk->is_catalog && !subject;
}

/*
 * Others changed it. If that was a change of names, a look at all of the tree since then has marked each object that
 * got another name or directory by it, since a rename changes the ctime of the object.
 */
static void note_unseen(struct record_walk *walk, const struct wb_record *record)
{
    const struct wb_rebinding *rebinding = walk->rebinding;
    struct wb_rebind_subject *subject = wb_rebind_subject(walk->rebinding, walk->log);

    if (!subject) {
        walk->failed = true;
        return;
    }
    if (walk->is_catalog)
        subject->trusted = MAX(subject->trusted, record->written);
    if (walk->is_catalog &&
        (record->gap.since < rebinding->marked_from || record->gap.until > rebinding->marked_until)) {
        subject->missed = MAX(subject->missed, record->written);
        subject->exchanged = MAX(subject->exchanged, record->written);
    }
    subject->unseen = MAX(subject->unseen, record->gap.until);
}

static void note_damage(struct record_walk *walk)
{
    struct wb_rebind_subject *subject = wb_rebind_subject(walk->rebinding, walk->log);

    if (subject)
        subject->damaged = true;
    else
        walk->failed = true;
}

/* A log that was forgotten beyond the horizon: records in other logs that are older may be overtaken. */
static void note_filler(struct record_walk *walk, int64_t until)
{
    const struct wb_header *header = &walk->rebinding->checking->header;
    struct wb_rebind_subject *subject;

    note_forgotten(walk);
    subject = g_hash_table_lookup(walk->rebinding->subjects, &walk->log);
    if (!subject || until <= (header->forgotten ? header->created : 0))
        return;
    subject->until = MAX(subject->until, until);
    distrust(walk, until);
}

static void note_record(struct record_walk *walk, const struct wb_record *record)
{
    walk->rebinding->newest = MAX(walk->rebinding->newest, record->written);
    switch (record->type) {
    case WB_REC_NAME:
        for (uint32_t i = 0; walk->is_catalog && i < record->name.count; i++)
            note_slot(walk, record, &record->name.slots[i]);
        break;
    case WB_REC_ATTR:
        note_attr(walk, record, record->attr.object, &record->attr.attrs);
        break;
    case WB_REC_XATTR:
        note_attr(walk, record, record->xattr.object, &record->xattr.attrs);
        break;
    case WB_REC_DATA:
        note_attr(walk, record, walk->log, &record->data.attrs);
        break;
    case WB_REC_PLACE:
        note_place(walk, record);
        break;
    case WB_REC_FILLER:
        note_filler(walk, record->filler.until);
        break;
    case WB_REC_GAP:
        wb_external_note(walk->rebinding->checking, walk->log, record);
        if (record->gap.reason == WB_GAP_UNSEEN)
            note_unseen(walk, record);
        else
            distrust(walk, record->written);
        if (!walk->is_catalog)
            note_meeting(walk, record, walk->log);
        break;
    default:
        break;
    }
}

static int read_log(struct wb_rebinding *rebinding, int fd, struct wb_object object, bool is_catalog)
{
    struct record_walk walk = {.rebinding = rebinding, .log = object, .is_catalog = is_catalog};
    struct wb_log_reader reader;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    int64_t above = WB_WHEN_PRESENT;
    int r = wb_log_reader_init(&reader, fd);

    while (r == 0) {
        r = wb_log_reader_prev_effective(&reader, &skip, &record);
        if (r == WB_DAMAGED) {
            note_damage(&walk);
            distrust(&walk, above);
            r = 0;
        } else if (r == 0) {
            above = record.written;
            note_record(&walk, &record);
        }
        if (r == 0 && walk.failed)
            r = -ENOMEM;
    }
    if (!wb_check_progress(rebinding->checking, 1, reader.end))
        r = -ECANCELED;
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

static int read_file(void *data, int dir_fd, const char *name)
{
    struct wb_rebinding *rebinding = data;
    _cleanup_close_ int fd = -1;
    struct wb_rebind_subject *subject;
    struct wb_object object;
    enum wb_object_file file;

    if (wb_object_file_parse(name, &object, &file) < 0 || file == WB_FILE_GONE)
        return 0;
    subject = wb_rebind_subject(rebinding, object);
    if (!subject)
        return -ENOMEM;
    subject->files |= (uint8_t)(1u << file);
    if (file == WB_FILE_CATALOG)
        subject->type = S_IFDIR;
    if (file != WB_FILE_UNDO && file != WB_FILE_CATALOG)
        return 0;
    fd = wb_open_own(dir_fd, name, O_RDONLY, 0);
    rebinding->checking->result.files++;
    return fd < 0 ? fd : read_log(rebinding, fd, object, file == WB_FILE_CATALOG);
}

/* A gap that is still open: names of that directory changed, and no record says which. */
static int read_gaps(struct wb_rebinding *rebinding)
{
    _cleanup_close_ int fd = wb_open_own(rebinding->checking->dir_fd, WB_GAPS_NAME, O_RDONLY, 0);
    uint8_t data[WB_GAP_SIZE];
    size_t length;
    int r = 0;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    for (uint64_t i = 1; i <= WB_GAPS_MAX && r == 0; i++) {
        struct wb_open_gap gap;

        r = wb_pread_full(fd, data, sizeof(data), i * WB_GAP_SIZE, &length);
        if (r == 0 && length == sizeof(data) && wb_gap_decode(data, &gap) == 0 && gap.file == WB_FILE_CATALOG) {
            struct wb_rebind_subject *subject = wb_rebind_subject(rebinding, gap.object);

            if (!subject)
                return -ENOMEM;
            subject->trusted = subject->missed = WB_WHEN_PRESENT;
        }
    }
    return r;
}

/* Of two snapshots with one path, the newer counts: what was there before has left by a change that was recorded. */
static int note_scope(struct wb_rebinding *rebinding, const struct wb_rec_snapshot *snapshot)
{
    struct wb_scope *scope, *known;

    if (snapshot->path_length == 0 || wb_object_equal(snapshot->scope, rebinding->checking->header.root))
        return 0;
    scope = g_try_malloc0(sizeof(*scope) + snapshot->path_length + 1);
    if (!scope)
        return -ENOMEM;
    scope->object = snapshot->scope;
    scope->when = snapshot->moment;
    memcpy(scope->path, snapshot->path, snapshot->path_length);
    known = g_hash_table_lookup(rebinding->scopes, scope);
    if (known && known->when >= scope->when)
        g_free(scope);
    else
        g_hash_table_replace(rebinding->scopes, scope, scope);
    return 0;
}

static int read_snapshots(struct wb_rebinding *rebinding)
{
    _cleanup_close_ int fd = wb_open_own(rebinding->checking->dir_fd, WB_SNAPSHOTS_NAME, O_RDONLY, 0);
    struct wb_log_reader reader;
    struct wb_record record;
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_log_reader_init(&reader, fd);
    if (r < 0)
        return r;
    wb_log_reader_seek(&reader, 0);
    do {
        r = wb_log_reader_next(&reader, &record);
        if (r == 0 && record.type == WB_REC_SNAPSHOT)
            r = note_scope(rebinding, &record.snapshot);
    } while (r == 0 || r == WB_DAMAGED);
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

/* ---- logs that are not there any more --------------------------------------------------------------- */

struct manifest_walk {
    struct wb_rebinding *rebinding;
    struct wb_store probe;
};

/* Its object may be any inode without records. Which objects had the names of a directory is not known. */
static int note_listed(const struct wb_manifest_entry *entry, void *data)
{
    struct manifest_walk *walk = data;
    int r = entry->file == WB_FILE_DATA ? 0 : wb_manifest_check(&walk->probe, entry->object, entry->file);
    struct wb_rebind_subject *subject = r > 0 ? wb_rebind_subject(walk->rebinding, entry->object) : NULL;

    /* A part of the list that a search for the entry passes is damaged; it is reported. */
    if (r <= 0)
        return r == -EBADMSG ? 0 : r;
    if (!subject)
        return -ENOMEM;
    subject->log_lost = true;
    if (entry->file == WB_FILE_CATALOG) {
        subject->type = S_IFDIR;
        subject->trusted = subject->missed = WB_WHEN_PRESENT;
    }
    return 0;
}

static int read_manifest(struct wb_rebinding *rebinding)
{
    struct wb_checking *checking = rebinding->checking;
    struct manifest_walk walk = {
        .rebinding = rebinding,
        .probe = {.dir_fd = checking->dir_fd, .grave_fd = -1, .header = checking->header},
    };
    int r = checking->header.manifest ? wb_manifest_check_shards(&walk.probe) : 0;
    bool damaged = r == -EBADMSG;

    if (damaged)
        r = 0;
    /* Without the list of lists, one that is missing may be that of a shard without logs. */
    for (unsigned shard = 0; r == 0 && shard < WB_SHARDS; shard++) {
        r = wb_manifest_each(&walk.probe, shard, note_listed, &walk);
        rebinding->unlisted[shard] = r == -EBADMSG;
        damaged |= r == -EBADMSG;
        if (r == -EBADMSG)
            r = 0;
    }
    if (r < 0 || !damaged)
        return r;
    rebinding->lost_track++;
    rebinding->lost_types = UINT_MAX;
    wb_check_report(checking, wb_check_mends(checking, true) ? WB_CHECK_LOST : WB_CHECK_WRONG, "damaged-manifest",
                  (struct wb_check_where){.file = WB_MANIFEST_NAME},
                  wb_check_mends(checking, true) ? "the past of all files without records was marked as unknown"
                                                 : "-y marks the past of all files without records as unknown",
                  "the list of logs is damaged; logs may be missing");
    return 0;
}

/* A table that cannot be read shows nothing. */
static int read_spans(struct wb_rebinding *rebinding)
{
    _cleanup_close_ int fd = wb_open_own(rebinding->checking->dir_fd, WB_SPANS_NAME, O_RDONLY, 0);
    uint8_t head[WB_SPAN_SIZE];
    struct wb_spans_head spans;
    size_t length;
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_pread_full(fd, head, sizeof(head), 0, &length);
    if (r == 0 && length == sizeof(head) && wb_spans_decode_head(head, &spans) == 0 && spans.from > 0) {
        rebinding->marked_from = spans.from * WB_WHEN_SECOND;
        rebinding->marked_until = spans.floor;
    }
    return r;
}

int wb_rebind_read(struct wb_rebinding *rebinding)
{
    int r = read_gaps(rebinding);

    if (r == 0)
        r = read_snapshots(rebinding);
    if (r == 0)
        r = read_spans(rebinding);
    for (unsigned i = 0; r == 0 && i < WB_SHARDS; i++)
        r = wb_shard_each(rebinding->checking->dir_fd, i, read_file, rebinding);
    return r == 0 ? read_manifest(rebinding) : r;
}

/*
 * Whether the arrival may be what has the name now. The newest PLACE of a directory holds as long as it lives, unless
 * others renamed it: then the directory itself has a mark, and no name in it is believed.
 */
static bool is_current(struct wb_rebinding *rebinding, const struct wb_fact *fact, int64_t trusted)
{
    const struct wb_rebind_subject *subject =
        fact->placed ? g_hash_table_lookup(rebinding->subjects, &fact->arrival) : NULL;
    const struct wb_rebind_subject *dir = g_hash_table_lookup(rebinding->subjects, &fact->dir);

    if (fact->arrived == 0 || fact->arrived < fact->changed)
        return false;
    return fact->arrived >= trusted || (subject && !(subject->match && subject->match->buried) &&
                                        !(dir && fact->arrived < dir->exchanged));
}

int64_t wb_rebind_trusted(const struct wb_rebinding *rebinding, struct wb_object dir)
{
    const struct wb_rebind_subject *subject = g_hash_table_lookup(rebinding->subjects, &dir);

    /* Its catalog may be missing or have lost its end. */
    if (rebinding->unlisted[dir.ino % WB_SHARDS])
        return WB_WHEN_PRESENT;
    return subject ? subject->trusted : 0;
}

struct wb_object wb_rebind_resolve(struct wb_rebinding *rebinding, struct wb_object dir, const char *name,
                                   struct wb_fact **ret_fact)
{
    int64_t trusted = wb_rebind_trusted(rebinding, dir);
    size_t length = strlen(name);
    g_autofree struct wb_fact *key = g_malloc0(sizeof(*key) + length + 1);
    const struct wb_object *linked;
    struct wb_fact *fact;

    key->dir = dir;
    memcpy(key->name, name, length);
    *ret_fact = fact = g_hash_table_lookup(rebinding->facts, key);
    if (!fact)
        return WB_OBJECT_NONE;
    /* A record holds the state before: the object that was met by the name may have lost it by that very change. */
    if (fact->met > fact->changed && fact->met >= trusted && fact->met > fact->arrived)
        return fact->meeting;
    if (is_current(rebinding, fact, trusted))
        return fact->arrival;
    linked = fact->linked && fact->changed >= trusted ? g_hash_table_lookup(rebinding->links, &fact->changed) : NULL;
    return linked ? *linked : WB_OBJECT_NONE;
}
