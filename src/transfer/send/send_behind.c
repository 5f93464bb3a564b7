/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds objects that were changed behind the mount. There is no record of such a change. But ctime, which cannot be
 * set, shows when an object was last changed, renamed or linked, and each record contains the ctime before its change.
 * So if a ctime is later than `since` and later than the record before, the change was not made through the mount, and
 * the copy may have any other state of the object.
 *
 * A false alarm does no harm: more is sent than is needed. So a small object is sent in case of doubt. A large one is
 * sent only if the difference is too big to be explained by a slow disk, or by a process that was stopped between
 * record and change.
 */
#include "transfer/send/send.h"

#include "store/identity/identities.h"
#include "store/parts.h"
#include "store/tables/received.h"
#include "wayback/when.h"
#include <fcntl.h>
#include <sys/stat.h>

#define TICK (WB_WHEN_SECOND / 50) /* of the clock of ctime, and more */
#define DELAY (10 * WB_WHEN_SECOND)
#define LARGE (UINT64_C(16) << 20)

/* Until then, vreceive changed the objects of a copy, and the program that copied a tree changed those of the copy. */
int64_t wb_sending_floor(const struct wb_sending *sending)
{
    static const char *const names[] = {WB_RECEIVED_NAME, WB_IDENTITIES_NAME};
    int64_t floor = sending->since;
    struct stat st;

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++)
        if (fstatat(sending->store->dir_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
            floor = MAX(floor, st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec);
    return floor;
}

void wb_sending_note_time(const struct wb_sending *sending, struct wb_sent *sent, int64_t when, int64_t ctime)
{
    struct wb_sent_time time = {when, ctime};

    if (sending->since == 0)
        return; /* all objects are sent */
    if (!sent->times)
        sent->times = g_array_new(FALSE, FALSE, sizeof(time));
    g_array_append_val(sent->times, time);
}

static int by_when(const void *a, const void *b)
{
    const struct wb_sent_time *x = a, *y = b;

    return x->when < y->when ? -1 : x->when > y->when;
}

/* Whether some ctime is later than what was recorded before by more than `slack`. */
static bool is_later(const struct wb_sending *sending, const struct wb_sent *sent, int64_t ctime, int64_t slack)
{
    int64_t explained = sending->floor;

    if (sent && sent->times)
        g_array_sort(sent->times, by_when);
    for (guint i = 0; sent && sent->times && i < sent->times->len; i++) {
        const struct wb_sent_time *time = &g_array_index(sent->times, struct wb_sent_time, i);

        if (time->ctime > explained + slack)
            return true;
        explained = MAX(explained, time->when);
    }
    return ctime > explained + slack;
}

bool wb_sending_is_behind(const struct wb_sending *sending, const struct wb_sent *sent, const struct wb_attrs *attrs)
{
    bool large = S_ISREG(attrs->mode) && attrs->size > LARGE;

    return sending->since > 0 && is_later(sending, sent, attrs->ctime, large ? DELAY : TICK);
}

bool wb_sending_may_be_foreign(const struct wb_sending *sending, const struct wb_sent *sent, struct wb_object object,
                               const struct wb_attrs *attrs)
{
    /* A rename leaves its time of modification alone. */
    return attrs->ctime > attrs->mtime + TICK || object.birth > sending->floor ||
           is_later(sending, sent, attrs->ctime, DELAY);
}
