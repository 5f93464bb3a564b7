/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is left once tree and history are matched: what is in neither place, and files that may be others. */
#include "check/rebind/rebind.h"

#include "wayback/when.h"

/* As in external.c: between the record and the change itself a process may be stopped, or a disk be slow. */
#define SLACK (60 * WB_WHEN_SECOND)
#define BIT(file) (1u << (file))

/* ---- what is missing --------------------------------------------------------------------------------- */

/*
 * Whether the records that took the name away may be forgotten by age: its directory is not in the tree any more, and
 * before a directory goes, all that is in it goes.
 */
static bool is_forgotten(const struct wb_rebinding *rebinding, const struct wb_fact *fact)
{
    const struct wb_header *header = &rebinding->checking->header;
    const struct wb_subject *dir = g_hash_table_lookup(rebinding->subjects, &fact->dir);

    return header->forgotten && MAX(fact->arrived, fact->met) <= header->created && (!dir || !dir->match);
}

/* The name that an object should have, where nothing has it. */
static void find_missing(struct wb_rebinding *rebinding)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, rebinding->facts);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        struct wb_fact *fact = value, *same;
        struct wb_object object = wb_rebind_resolve(rebinding, fact->dir, fact->name, &same);
        struct wb_subject *subject =
            wb_object_is_none(object) ? NULL : g_hash_table_lookup(rebinding->subjects, &object);

        if (!subject || subject->match)
            continue;
        if (is_forgotten(rebinding, fact))
            subject->outlived = true;
        else
            subject->fact = fact;
    }
}

static void tell_missing(struct wb_rebinding *rebinding, const struct wb_subject *subject)
{
    const struct wb_subject *dir = g_hash_table_lookup(rebinding->subjects, &subject->fact->dir);
    const char *above = dir && dir->match ? dir->match->path : "?";
    g_autofree char *path = g_strdup_printf("%s%s%s", above, *above ? "/" : "", subject->fact->name);
    struct wb_check_where where = {.path = path};

    wb_check_tell(rebinding->checking, WB_CHECK_LOST, "missing", where, NULL,
                  "it is not in this tree; its history is kept, but belongs to no file");
}

static void tell_lost_track(struct wb_rebinding *rebinding, const struct wb_subject *subject)
{
    bool given_up = wb_check_mends(rebinding->checking, true);
    char file[WB_OBJECT_TEXT_MAX];
    struct wb_check_where where = {.file = file};

    wb_object_print(subject->object, file);
    rebinding->lost_track++;
    wb_check_tell(rebinding->checking, given_up ? WB_CHECK_LOST : WB_CHECK_WRONG, "lost-track", where,
                  given_up ? "kept without a file; the past of all files that it may belong to is unknown"
                           : "-y keeps it without a file; then the past of all files that it may belong to is unknown",
                  "no record identifies the file of this tree that this history belongs to");
}

static void look_after_subjects(struct wb_rebinding *rebinding)
{
    GHashTableIter iter;
    void *value;

    find_missing(rebinding);
    g_hash_table_iter_init(&iter, rebinding->subjects);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_subject *subject = value;
        /*
         * Of what was forgotten as a whole no state is told any more but the one it is in, wherever it is. A log
         * forgotten beyond the horizon refuses older states, which others still have.
         */
        bool tells = subject->seen > 0 || subject->until > 0 ||
                     (!subject->forgotten && subject->files & (BIT(WB_FILE_UNDO) | BIT(WB_FILE_CATALOG)));

        if (subject->match || !tells || (subject->lost > 0 && subject->lost >= subject->seen) ||
            (subject->outlived && !subject->fact))
            continue;
        if (subject->fact)
            tell_missing(rebinding, subject);
        else
            tell_lost_track(rebinding, subject);
    }
}

/* ---- contents that may be others ------------------------------------------------------------------ */

/*
 * Whether a file is not what the records are of: somebody changed it, or put another in its place, without the mount.
 * A copy keeps size and mtime. Times that somebody set tell nothing.
 */
static bool is_doubtful(const struct wb_rebinding *rebinding, const struct wb_match *match)
{
    const struct wb_known *known = g_hash_table_lookup(rebinding->checking->objects, &match->object);
    const struct wb_subject *subject = g_hash_table_lookup(rebinding->subjects, &match->object);
    const struct wb_header *header = &rebinding->checking->header;
    /* Of what was before there may be some records, and not the newest. */
    int64_t horizon = MAX(header->forgotten ? header->created : 0, subject ? subject->until : 0);
    int64_t newest = MAX(known ? known->newest : 0, horizon);
    bool staged = wb_external_is_staged(rebinding->checking, match->object);

    if (!match->told)
        /* Made by the mount, and never changed; or there before there was a history, and never changed since. */
        return match->fact && match->fact->changed ? match->mtime > match->fact->changed + SLACK
                                                   : match->mtime > header->created;
    newest = MAX(newest, match->fact ? match->fact->changed : 0);
    /* An open write session leaves no record of growth: until the daemon was killed, hardly later than any record. */
    if (staged)
        newest = MAX(newest, rebinding->newest);
    if (known && !staged && known->resized > horizon && known->size_after > 0 && match->size > known->size_after)
        return true;
    return match->mtime > newest + SLACK && (!subject || subject->timed == 0 || subject->timed < subject->content);
}

/* Files that had more names: what was one of these is another file now, with the same size and mtime. */
static void find_parted(struct wb_rebinding *rebinding)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, rebinding->matches);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_match *match = value;
        const struct wb_subject *subject = g_hash_table_lookup(rebinding->subjects, &match->object);
        struct wb_parted *parted;

        if (!match->is_file || !subject || subject->links <= match->links)
            continue;
        parted = g_new(struct wb_parted, 1);
        *parted = (struct wb_parted){(int64_t)match->size, match->mtime};
        g_hash_table_add(rebinding->parted, parted);
    }
}

static bool is_parted(const struct wb_rebinding *rebinding, const struct wb_match *match)
{
    struct wb_parted key = {(int64_t)match->size, match->mtime};

    return !match->told && g_hash_table_contains(rebinding->parted, &key);
}

static void look_at_contents(struct wb_rebinding *rebinding)
{
    bool marked = wb_check_mends(rebinding->checking, true) && rebinding->hindered == 0;
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, rebinding->matches);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        struct wb_match *match = value;
        struct wb_check_where where = {.path = match->path};

        /* A history that is left over may be of anything without one: of a directory or a special file as well. */
        match->doubtful = (match->is_file && (is_doubtful(rebinding, match) || is_parted(rebinding, match))) ||
                          (!match->told && rebinding->lost_track > 0);
        if (!match->doubtful)
            continue;
        rebinding->doubtful++;
        wb_check_tell(rebinding->checking, marked ? WB_CHECK_REPAIRED : WB_CHECK_WRONG, "external-content", where,
                      marked ? "its versions until now were marked as unknown"
                             : "-y marks its versions until now as unknown",
                      "its present state does not match its records");
    }
}

void wb_rebind_look_after(struct wb_rebinding *rebinding)
{
    look_after_subjects(rebinding);
    find_parted(rebinding);
    look_at_contents(rebinding);
}
