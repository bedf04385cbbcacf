//! Checks these declarations against the installed mlx5dv.h, with its C compiler: layouts,
//! constants, and the types of functions. The C is generated from the Rust types themselves, so
//! that neither side can change alone.

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::mem::{align_of, offset_of, size_of};
use std::process::{Command, Stdio};

use rdma_sys::{ibv_ah, ibv_context, ibv_device, ibv_pd, ibv_qp, ibv_qp_ex, ibv_qp_init_attr_ex, ibv_sge};
use verbline_softnic::mlx5dv::*;

use super::ffi::*;
use super::functions::declared;

/// Reports that the check cannot run here; fails where it must run.
pub(super) fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI must not skip this: {why}");
    eprintln!("skipped: {why}");
}

/// A type that exists in C too.
trait CType {
    fn c() -> String;
}

macro_rules! c_types {
    ($($type:ty = $c:literal;)*) => {
        $(impl CType for $type { fn c() -> String { $c.to_owned() } })*
    };
}

c_types! {
    () = "void"; bool = "bool"; u8 = "uint8_t"; u16 = "uint16_t"; u32 = "uint32_t"; u64 = "uint64_t";
    usize = "size_t"; c_int = "int"; c_void = "void";
}

macro_rules! c_structs {
    ($($type:ident)*) => {
        $(impl CType for $type { fn c() -> String { concat!("struct ", stringify!($type)).to_owned() } })*
    };
}

c_structs! {
    ibv_ah ibv_context ibv_device ibv_pd ibv_qp ibv_qp_ex ibv_qp_init_attr_ex ibv_sge
    mlx5dv_context mlx5dv_mkey mlx5dv_mkey_conf_attr mlx5dv_mkey_err mlx5dv_mkey_init_attr mlx5dv_mr_interleaved
    mlx5dv_qp_ex mlx5dv_qp_init_attr mlx5dv_sig_block_attr
}

impl<T: CType> CType for *mut T {
    fn c() -> String {
        format!("{} *", T::c())
    }
}

impl<T: CType> CType for *const T {
    fn c() -> String {
        format!("const {} *", T::c())
    }
}

/// A function's type in C.
pub(super) struct Prototype {
    result: String,
    arguments: Vec<String>,
}

impl Prototype {
    /// A pointer to such a function.
    fn pointer(&self) -> String {
        format!("{} (*)({})", self.result, self.arguments.join(", "))
    }
}

/// A Rust function type that exists in C too.
pub(super) trait Function {
    fn prototype() -> Prototype;
}

macro_rules! function_types {
    ($(($($argument:ident)*))*) => { $(
        impl<R: CType, $($argument: CType),*> Function for unsafe extern "C" fn($($argument),*) -> R {
            fn prototype() -> Prototype {
                Prototype { result: R::c(), arguments: vec![$($argument::c()),*] }
            }
        }
    )* };
}

function_types! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

/// The type of a field that is a function.
fn prototype_of<F: Function>(_: impl Fn(&mlx5dv_qp_ex) -> Option<F>) -> Prototype {
    F::prototype()
}

/// C source that does not compile if the header differs.
struct Source(String);

impl Source {
    fn assert(&mut self, condition: &str) {
        self.0.push_str(&format!("_Static_assert({condition}, \"here it is another\");\n"));
    }

    fn same_size<T>(&mut self, name: &str) {
        self.assert(&format!("sizeof({name}) == {} && _Alignof({name}) == {}", size_of::<T>(), align_of::<T>()));
    }

    fn field(&mut self, of: &str, path: &str, offset: usize, size: usize) {
        self.assert(&format!("__builtin_offsetof({of}, {path}) == {offset}"));
        self.assert(&format!("sizeof((({of} *)0)->{path}) == {size}"));
    }

    fn constant(&mut self, name: &str, value: u64) {
        self.assert(&format!("{name} == {value}"));
    }

    fn same_type(&mut self, of: &str, prototype: &Prototype) {
        self.assert(&format!("__builtin_types_compatible_p(__typeof__({of}), {})", prototype.pointer()));
    }

    /// The compiler's messages.
    fn compile(&self) -> Result<(), String> {
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut child = Command::new(compiler)
            .args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cc can't be run: {error}"))?;
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(self.0.as_bytes()).map_err(|error| error.to_string())?;
        drop(stdin);
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(said) }
    }
}

/// The fields of a struct. A field named neither here nor behind `-` is an error.
macro_rules! fields {
    ($c:ident, $type:ident { $($field:ident $(= $path:literal)?),* } $(- $ignored:ident)?) => {{
        fn sizes(of: &$type) -> Vec<usize> {
            let $type { $($field,)* $($ignored: _)? } = of;
            vec![$(size_of_val($field)),*]
        }
        // SAFETY: numbers, pointers and optional functions: all zeros is a value.
        let sizes = sizes(&unsafe { std::mem::zeroed() });
        let paths = [$([stringify!($field), $($path)?].last().copied().unwrap_or_default()),*];
        let offsets = [$(offset_of!($type, $field)),*];
        for ((path, offset), size) in paths.into_iter().zip(offsets).zip(sizes) {
            $c.field(concat!("struct ", stringify!($type)), path, offset, size);
        }
    }};
}

/// The size and fields of a struct.
macro_rules! layout {
    ($c:ident, $type:ident $fields:tt) => {
        $c.same_size::<$type>(concat!("struct ", stringify!($type)));
        fields!($c, $type $fields);
    };
}

/// Constants of a module, with their prefix in C.
macro_rules! constants {
    ($c:ident, $module:ident, $prefix:literal, $($name:ident $(= $theirs:literal)?),*) => {
        $(
            let name = [stringify!($name), $($theirs)?].last().copied().unwrap_or_default();
            $c.constant(&format!("{}{name}", $prefix), $module::$name.into());
        )*
    };
}

fn layouts(c: &mut Source) {
    layout!(c, mlx5dv_mkey_init_attr { pd, create_flags, max_entries });
    layout!(c, mlx5dv_mkey { lkey, rkey });
    layout!(c, mlx5dv_mkey_err { err_type, sig = "err.sig" });
    layout!(c, mlx5dv_sig_err { actual_value, expected_value, offset });
    layout!(c, mlx5dv_mr_interleaved { addr, bytes_count, bytes_skip, lkey });
    layout!(c, mlx5dv_sig_t10dif { bg_type, bg, app_tag, ref_tag, flags });
    layout!(c, mlx5dv_sig_crc { type_ = "type", seed });
    layout!(c, mlx5dv_sig_block_domain { sig_type, sig, block_size, comp_mask });
    layout!(c, mlx5dv_sig_block_attr { mem, wire, flags, check_mask, copy_mask, comp_mask });
    layout!(c, mlx5dv_mkey_conf_attr { conf_flags, comp_mask });
    layout!(c, mlx5dv_sig_caps { block_size, block_prot, t10dif_bg, crc_type });
    layout!(c, mlx5dv_dc_init_attr { dc_type, dct_access_key });
    layout!(c, mlx5dv_qp_init_attr { comp_mask, create_flags, dc_init_attr, send_ops_flags });
    fields!(
        c,
        mlx5dv_context {
            version,
            flags,
            comp_mask,
            cqe_comp_caps,
            sw_parsing_caps,
            striding_rq_caps,
            tunnel_offloads_caps,
            max_dynamic_bfregs,
            max_clock_info_update_nsec,
            flow_action_flags,
            dc_odp_caps,
            hca_core_clock,
            num_lag_ports,
            sig_caps
        } - rest
    );
    c.assert(&format!("sizeof(struct mlx5dv_context) <= {}", size_of::<mlx5dv_context>()));
    fields!(
        c,
        mlx5dv_qp_ex {
            comp_mask,
            wr_set_dc_addr,
            wr_mr_interleaved,
            wr_mr_list,
            wr_mkey_configure,
            wr_set_mkey_access_flags,
            wr_set_mkey_layout_list,
            wr_set_mkey_layout_interleaved,
            wr_set_mkey_sig_block
        }
    );
    c.assert(&format!("sizeof(struct mlx5dv_qp_ex) >= {}", size_of::<mlx5dv_qp_ex>()));
}

fn numbers(c: &mut Source) {
    constants!(c, context_mask, "MLX5DV_CONTEXT_MASK_", SIGNATURE_OFFLOAD);
    constants!(c, qp_init_attr_mask, "MLX5DV_QP_INIT_ATTR_MASK_", QP_CREATE_FLAGS, SEND_OPS_FLAGS);
    constants!(c, mkey_init_attr_flags, "MLX5DV_MKEY_INIT_ATTR_FLAGS_", INDIRECT, BLOCK_SIGNATURE, REMOTE_INVALIDATE);
    constants!(c, qp_create_flags, "MLX5DV_QP_CREATE_", DISABLE_SCATTER_TO_CQE, SIG_PIPELINING);
    constants!(c, send_ops_flags, "MLX5DV_QP_EX_WITH_", MKEY_CONFIGURE);
    constants!(c, mkey_conf_flags, "MLX5DV_MKEY_CONF_FLAG_", RESET_SIG_ATTR);
    constants!(c, sig_type, "MLX5DV_SIG_TYPE_", T10DIF, CRC);
    constants!(c, t10dif_bg_type, "MLX5DV_SIG_T10DIF_", CRC, CSUM);
    constants!(c, t10dif_flags, "MLX5DV_SIG_T10DIF_FLAG_", REF_REMAP, APP_ESCAPE, APP_REF_ESCAPE);
    constants!(c, crc_type, "MLX5DV_SIG_CRC_TYPE_", CRC32, CRC32C, CRC64_XP10);
    constants!(c, block_size, "MLX5DV_BLOCK_SIZE_", B512 = "512", B520 = "520", B4048 = "4048");
    constants!(c, block_size, "MLX5DV_BLOCK_SIZE_", B4096 = "4096", B4160 = "4160");
    constants!(c, sig_block_attr_flags, "MLX5DV_SIG_BLOCK_ATTR_FLAG_", COPY_MASK);
    constants!(c, mkey_err_type, "MLX5DV_MKEY_", NO_ERR, BAD_GUARD = "SIG_BLOCK_BAD_GUARD");
    constants!(c, mkey_err_type, "MLX5DV_MKEY_SIG_BLOCK_", BAD_REFTAG, BAD_APPTAG);
}

fn functions(c: &mut Source) {
    for (symbol, prototype) in declared() {
        c.same_type(&format!("&{}", symbol.to_str().expect("names are ASCII")), &prototype);
    }
    let mut table = |field: &str, prototype: Prototype| {
        c.same_type(&format!("((struct mlx5dv_qp_ex *)0)->{field}"), &prototype);
    };
    table("wr_set_dc_addr", prototype_of(|table| table.wr_set_dc_addr));
    table("wr_mr_interleaved", prototype_of(|table| table.wr_mr_interleaved));
    table("wr_mr_list", prototype_of(|table| table.wr_mr_list));
    table("wr_mkey_configure", prototype_of(|table| table.wr_mkey_configure));
    table("wr_set_mkey_access_flags", prototype_of(|table| table.wr_set_mkey_access_flags));
    table("wr_set_mkey_layout_list", prototype_of(|table| table.wr_set_mkey_layout_list));
    table("wr_set_mkey_layout_interleaved", prototype_of(|table| table.wr_set_mkey_layout_interleaved));
    table("wr_set_mkey_sig_block", prototype_of(|table| table.wr_set_mkey_sig_block));
}

/// The start of the source, which includes the header; `None` without a usable header.
fn with_header() -> Option<Source> {
    let source = Source("#include <infiniband/mlx5dv.h>\n".into());
    let probe = Source(format!("{}int used = MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE;\n", source.0));
    match probe.compile() {
        Ok(()) => Some(source),
        Err(said) => {
            skipped(&format!("infiniband/mlx5dv.h of rdma-core 43 or later (libibverbs-dev): {said}"));
            None
        }
    }
}

#[test]
fn layouts_constants_and_functions_are_those_of_the_header() {
    let Some(mut source) = with_header() else { return };
    layouts(&mut source);
    numbers(&mut source);
    functions(&mut source);
    let asserted = source.0.matches("_Static_assert").count();
    assert!(asserted > 150, "only {asserted} things are held against the header");
    if let Err(said) = source.compile() {
        panic!("mlx5dv.h says something else than verbs/src/mlx5 and softnic/src/signature/types.rs:\n{said}");
    }
}

#[test]
fn what_differs_from_the_header_does_not_compile() {
    let Some(source) = with_header() else { return };
    let differs = |break_it: &dyn Fn(&mut Source)| {
        let mut broken = Source(source.0.clone());
        break_it(&mut broken);
        broken.compile().unwrap_err()
    };
    let said = [
        differs(&|c| c.constant("MLX5DV_SIG_CRC_TYPE_CRC32C", 2)),
        differs(&|c| c.field("struct mlx5dv_sig_block_attr", "copy_mask", 20, 1)),
        differs(&|c| c.field("struct mlx5dv_sig_block_attr", "copy_mask", 21, 2)),
        differs(&|c| c.same_size::<mlx5dv_mkey>("struct mlx5dv_mkey_init_attr")),
        differs(&|c| {
            c.same_type("((struct mlx5dv_qp_ex *)0)->wr_mr_list", &prototype_of(|table| table.wr_set_mkey_layout_list));
        }),
        differs(&|c| c.same_type("&mlx5dv_destroy_mkey", &exported::CreateMkey::prototype())),
    ];
    assert!(said.iter().all(|said| said.contains("here it is another")), "{said:?}");
}
