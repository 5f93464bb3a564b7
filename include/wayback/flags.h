/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_FLAGS_H
#define WAYBACK_FLAGS_H

/*
 * The inode flags (chattr(1); FS_IOC_GETFLAGS and FS_IOC_FSGETXATTR) that the history records and vrevert restores:
 * those that a user sets. Excluded are flags that the file system sets itself or that describe how it stores the file:
 * encrypted, verity, extents, index, inline data, "does not compress", preallocated, "has attributes".
 * Files that use these macros include linux/fs.h.
 */
#define WB_USER_FLAGS                                                                                                  \
    (FS_SECRM_FL | FS_UNRM_FL | FS_COMPR_FL | FS_SYNC_FL | FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL |             \
     FS_NOATIME_FL | FS_JOURNAL_DATA_FL | FS_NOTAIL_FL | FS_DIRSYNC_FL | FS_TOPDIR_FL | FS_NOCOW_FL | FS_DAX_FL |      \
     FS_PROJINHERIT_FL)
#define WB_USER_XFLAGS                                                                                                 \
    (FS_XFLAG_REALTIME | FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND | FS_XFLAG_SYNC | FS_XFLAG_NOATIME | FS_XFLAG_NODUMP |   \
     FS_XFLAG_RTINHERIT | FS_XFLAG_PROJINHERIT | FS_XFLAG_NOSYMLINKS | FS_XFLAG_EXTSIZE | FS_XFLAG_EXTSZINHERIT |      \
     FS_XFLAG_NODEFRAG | FS_XFLAG_FILESTREAM | FS_XFLAG_DAX | FS_XFLAG_COWEXTSIZE)

#endif
