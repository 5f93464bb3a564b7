/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Attributes at a moment: those in the earliest record after it that has them, else the present ones.
 *
 * Two logs are searched: the catalog of the directory through which the object was reached, until the object lost its
 * name there (that record has the attributes, too, so no later one is ever the earliest), and the object's own log.
 */
#include "history/internal.h"

#include "base/cleanup.h"
#include "store/inflight/spans.h"
#include "store/inflight/stages.h"
#include <errno.h>
#include <fcntl.h>

/* The earliest record found so far. */
struct candidate {
    bool found;
    int64_t when;
    int64_t stage; /* when the stage began of which it is the end, or 0 */
    struct wb_attrs attrs;
};

/* The attributes of `object` in a record, or NULL. `own`: the record is from the object's own log. */
static const struct wb_attrs *attrs_in_record(const struct wb_record *record, struct wb_object object, bool own)
{
    switch (record->type) {
    case WB_REC_NAME:
        if (own)
            return &record->name.dir;
        for (uint32_t i = 0; i < record->name.count; i++) {
            const struct wb_slot *slot = &record->name.slots[i];

            if (slot->present && wb_object_equal(slot->object, object))
                return &slot->attrs;
        }
        return NULL;
    case WB_REC_DATA:
        return own ? &record->data.attrs : NULL;
    case WB_REC_ATTR:
        return wb_object_equal(record->attr.object, object) ? &record->attr.attrs : NULL;
    case WB_REC_XATTR:
        return wb_object_equal(record->xattr.object, object) ? &record->xattr.attrs : NULL;
    default:
        return NULL;
    }
}

/* The attributes found by a walk, and the moment for which it searches. */
struct search {
    int64_t when;
    struct candidate found;
    bool indexed; /* an INDEX gave attributes, and does not say of which stage they are */
};

/*
 * An INDEX of an undo log has the earliest attributes of the records that it covers; if all of these are later than T,
 * the walk need not read them.
 */
static bool pass_newer(const struct wb_record *record, void *data)
{
    const struct wb_rec_index *index = &record->index;
    struct search *search = data;

    if (index->first <= search->when)
        return false;
    if (index->attrs_when > 0)
        search->found = (struct candidate){true, index->attrs_when, 0, index->attrs};
    search->indexed |= index->attrs_when > 0;
    return true;
}

/* Records later than `since` are missing. */
struct cut {
    int64_t since; /* INT64_MAX: none is missing */
    int64_t sure;  /* a later record, of any log, is not certain to be the earliest */
    unsigned reason;
    int64_t before; /* the end of a GAP that ended the walk, since the changes it stands for came before T; or 0 */
    unsigned before_reason;
};

#define CUT_NONE                                                                                                       \
    {                                                                                                                  \
        .since = INT64_MAX, .sure = INT64_MAX                                                                          \
    }

static void add_cut(struct cut *cut, const struct wb_record *gap, bool own)
{
    bool unseen = gap->gap.reason == WB_GAP_UNSEEN;

    /* A change of the object itself moved its ctime, so its own log has a GAP. */
    if (unseen && !own)
        return;
    /* Such a GAP is written before any later record about the object, in whatever log (capture/unseen.h). */
    cut->sure = MIN(cut->sure, unseen ? gap->when : gap->gap.since);
    if (gap->gap.since < cut->since) {
        cut->since = gap->gap.since;
        cut->reason = gap->gap.reason;
    }
}

/* When the stage began that a record of attributes belongs to; 0: to none, or to one that is under way. */
static int64_t stage_of(const struct wb_log_scan *scan, const struct wb_record *record)
{
    if (record->type == WB_REC_ATTR)
        return record->attr.begin;
    if (!(record->flags & WB_RECORD_STAGE) || record->when == WB_WHEN_UNDER_WAY)
        return 0;
    /* Without its end, which a power cut took, it is no later than its records. */
    return scan->source.skip.stage_cut > 0 ? record->written : scan->source.skip.stage_begin;
}

/* Walks one log down to T, or down to `seen`. `whole`: without help of INDEX records. */
static int search_records(struct wb_history *history, const struct wb_revision *revision, struct wb_object log,
                          enum wb_object_file file, uint64_t seen, bool whole, struct search *ret, struct cut *cut)
{
    bool own = wb_object_equal(log, revision->object);
    struct search search = {.when = revision->when};
    const struct wb_record *record, *gap;
    const struct wb_attrs *attrs;
    struct wb_log_scan scan;
    int r;

    r = wb_log_scan_open(&scan, history, log, file, revision->when);
    if (r < 0)
        return r;
    if (own && file == WB_FILE_UNDO && !whole) {
        scan.source.reader.pass = pass_newer;
        scan.source.reader.pass_data = &search;
    }
    scan.through = true;
    while ((r = wb_log_scan_next(&scan, &record)) == 0 && record->offset >= seen) {
        if (wb_log_scan_is_cut(record))
            add_cut(cut, record, own);
        attrs = attrs_in_record(record, revision->object, own);
        /* The record of a stage whose end was skipped with an INDEX is not later than the attributes found there. */
        if (attrs)
            search.found = (struct candidate){
                true, search.found.found ? MIN(record->when, search.found.when) : record->when,
                stage_of(&scan, record), *attrs};
    }
    gap = r == WB_END && own ? wb_log_scan_last_gap(&scan) : NULL;
    if (gap) {
        cut->before = gap->when;
        cut->before_reason = gap->gap.reason;
    }
    wb_log_scan_close(&scan);
    *ret = search;
    return r < 0 ? r : 0;
}

static int search_log(struct wb_history *history, const struct wb_revision *revision, struct wb_object log,
                      enum wb_object_file file, uint64_t seen, struct candidate *best, struct cut *cut)
{
    struct search search;
    int r = search_records(history, revision, log, file, seen, false, &search, cut);

    if (r == 0 && cut->before > 0 && search.indexed)
        r = search_records(history, revision, log, file, seen, true, &search, cut);
    if (r == 0 && search.found.found && (!best->found || search.found.when < best->when))
        *best = search.found;
    return r;
}

int wb_own_ctime(struct wb_history *history, struct wb_object object, uint32_t mode, int64_t when, int64_t *ctime)
{
    enum wb_object_file file = S_ISDIR(mode) ? WB_FILE_CATALOG : WB_FILE_UNDO;
    struct wb_revision revision = {.object = object, .type = mode & S_IFMT, .when = when};
    struct candidate first = {0};
    struct cut cut = CUT_NONE;
    int r = search_log(history, &revision, object, file, 0, &first, &cut);

    if (r < 0)
        return r;
    if (first.found)
        *ctime = first.attrs.ctime;
    return cut.since == INT64_MAX;
}

/* Whether the log is still the one from which the hint was taken. */
static int hint_holds(struct wb_history *history, const struct wb_revision *revision)
{
    struct wb_object identity;
    int r;

    if (!revision->hint.valid)
        return 0;
    r = wb_catalog_identity(history, revision->parent->object, &identity);
    return r < 0 ? r : wb_object_equal(identity, revision->hint.log);
}

/* Searches the parent's catalog, except the part that the hint covers. */
static int search_parent(struct wb_history *history, const struct wb_revision *revision, bool hinted,
                         struct candidate *best, struct cut *cut)
{
    const struct wb_hint *hint = &revision->hint;

    if (!revision->parent)
        return 0;
    if (!hinted || !hint->found)
        return search_log(history, revision, revision->parent->object, WB_FILE_CATALOG, hinted ? hint->seen : 0, best,
                          cut);
    if (!best->found || hint->when < best->when)
        *best = (struct candidate){true, hint->when, hint->stage, hint->attrs};
    return 0;
}

/* The directories of the store, which users do not see. */
static uint32_t count_hidden(const struct wb_history *history)
{
    static const char *const names[] = {WB_STORE_NAME, WB_STAGING_NAME};
    uint32_t count = 0;
    struct stat st;

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++)
        if (fstatat(history->store->src_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            count++;
    return count;
}

static int present_attrs(struct wb_history *history, struct wb_revision *revision, struct wb_attrs *ret)
{
    _cleanup_close_ int fd = -1;
    int r, before, after;

    r = wb_resolve(history, revision, &fd, NULL);
    if (r < 0)
        return r;
    if (fd < 0)
        return wb_history_fail(-EIO, "the object that was \"%s\" is no more, and no record describes it",
                               revision->name);
    r = wb_object_stat(NULL, fd, NULL, NULL, ret, NULL);
    if (r < 0 || revision->type == S_IFDIR || ret->nlink < 2)
        return r;
    /* The two values are consistent only if the graveyard did not change in between. */
    before = wb_grave_has(history->store, revision->object, false);
    for (int tries = 0; before >= 0 && tries < 16; tries++) {
        r = wb_object_stat(NULL, fd, NULL, NULL, ret, NULL);
        if (r < 0)
            return r;
        after = wb_grave_has(history->store, revision->object, false);
        if (after == before)
            break;
        before = after;
    }
    if (before > 0 && ret->nlink > 1)
        ret->nlink--;
    return before < 0 ? before : 0;
}

/*
 * For a moment in a stage, which has the state from before the stage: a GAP that ends before that moment still makes
 * the state unknown if it ends after the stage began.
 */
static int check_stage(struct wb_history *history, struct wb_revision *revision, int64_t stage, const struct cut *cut)
{
    return cut->before > stage ? wb_history_fail_gap(cut->before_reason)
                               : wb_check_stage_seen(history, revision, stage);
}

static int past_attrs(struct wb_history *history, struct wb_revision *revision, struct wb_attrs *ret,
                      int64_t *ret_since)
{
    enum wb_object_file file = revision->type == S_IFDIR ? WB_FILE_CATALOG : WB_FILE_UNDO;
    struct candidate best = {0};
    struct wb_stage_entry stage;
    struct cut cut = CUT_NONE;
    int64_t begin;
    int r, present, hinted, staged = 0;

    hinted = hint_holds(history, revision);
    if (hinted < 0)
        return hinted;
    /* Read the present first: its state already has its record (history.h). */
    present = hinted && revision->hint.found ? 0 : present_attrs(history, revision, ret);
    /* Then check for a stage under way: one that has ended by now has its record in the log. */
    if (revision->type == S_IFREG)
        staged = wb_stages_find(history->store, revision->object, &stage, NULL);
    if (staged < 0)
        return staged;
    r = search_log(history, revision, revision->object, file, 0, &best, &cut);
    if (r == 0)
        r = search_parent(history, revision, hinted, &best, &cut);
    if (r < 0)
        return r;
    if (cut.since < INT64_MAX && !(best.found && best.when <= cut.sure) &&
        !wb_rested_since(best.found ? best.attrs.ctime : present == 0 && !staged ? ret->ctime : cut.since, cut.since))
        return wb_history_fail_gap(cut.reason);
    /* Its records show a stage under way whose slot was lost, and its end is not known. */
    if (best.found && best.when == WB_WHEN_UNDER_WAY && !staged &&
        (present < 0 || wb_spans_lost_slot(history->store, ret->ctime, false)))
        return present < 0 ? present : wb_history_fail_gap(WB_GAP_POWER);
    begin = staged > 0 && (!best.found || best.when == WB_WHEN_UNDER_WAY) ? stage.begin : best.stage;
    if (begin > 0 && begin <= revision->when) {
        r = check_stage(history, revision, begin, &cut);
        if (r < 0)
            return r;
        *ret_since = begin;
    }
    if (!best.found && staged > 0) {
        *ret = stage.attrs;
        return 0;
    }
    if (!best.found)
        return present;
    *ret = best.attrs;
    return 0;
}

int wb_revision_attrs_since(struct wb_history *history, struct wb_revision *revision, struct wb_attrs *ret,
                            int64_t *ret_since)
{
    int r;

    *ret_since = revision->when;
    r = revision->when == WB_WHEN_PRESENT ? present_attrs(history, revision, ret)
                                          : past_attrs(history, revision, ret, ret_since);
    /* No object changes its type. The kernel would open a file as a directory, by the type in the last reply. */
    if (r == 0 && (ret->mode & S_IFMT) != revision->type)
        r = wb_history_fail(-EIO, "records about \"%s\" contradict each other: it is of two types", revision->name);
    if (r == 0 && !revision->parent && ret->nlink > 2)
        ret->nlink -= MIN(count_hidden(history), ret->nlink - 2);
    return (int)wb_history_end(history, revision->when, r);
}

int wb_revision_attrs(struct wb_history *history, struct wb_revision *revision, struct wb_attrs *ret)
{
    int64_t since;

    return wb_revision_attrs_since(history, revision, ret, &since);
}
