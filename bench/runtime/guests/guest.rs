// The same loops as compiled by rustc.
#![no_std]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[no_mangle]
pub extern "C" fn wheelwork_handle(_: i32) -> i32 {
    0
}

#[no_mangle]
pub extern "C" fn fnv(rounds: u32) -> u32 {
    let mut h: u32 = 2166136261;
    for i in 0..rounds {
        h = (h ^ (i & 0xff)).wrapping_mul(16777619);
    }
    h
}

#[no_mangle]
pub extern "C" fn sort(n: u32) -> u32 {
    let mut numbers = [0u32; 1024];
    let mut s: u32 = 12345;
    for x in numbers.iter_mut() {
        s = s.wrapping_mul(1664525).wrapping_add(1013904223);
        *x = s;
    }
    let slice = &mut numbers[..(n as usize).min(1024)];
    slice.sort_unstable();
    slice[slice.len() / 2]
}
