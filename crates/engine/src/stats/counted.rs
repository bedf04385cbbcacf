//! How counters are declared: once, for who writes them and for the report that shows them.

/// Declares a report with its counters: one block of counters a writer, whose `read` copies them
/// into the report. `private` counters stand in no report as they are: a reader derives something
/// from them.
macro_rules! counted {
    (
        $(#[$report_doc:meta])*
        $report:ident { $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* }
        $(
            $(#[$stats_doc:meta])*
            $stats:ident { $($(#[$doc:meta])* $counter:ident,)* }
            private { $($(#[$own_doc:meta])* $own:ident: $own_type:ty,)* }
        )+
    ) => {
        $(#[$report_doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct $report {
            $($(#[$field_doc])* pub $field: $field_type,)*
            $($($(#[$doc])* pub $counter: u64,)*)+
        }
        $(
            $(#[$stats_doc])*
            #[derive(Debug, Default)]
            pub(crate) struct $stats {
                $($(#[$doc])* pub(crate) $counter: Count,)*
                $($(#[$own_doc])* pub(crate) $own: $own_type,)*
            }

            impl $stats {
                pub(crate) fn read(&self, report: &mut $report) {
                    $(report.$counter = self.$counter.value();)*
                }
            }
        )+
    };
}

pub(crate) use counted;
